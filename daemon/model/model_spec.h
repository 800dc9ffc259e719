// What the model is, as the job declared it. Everything is optional; an absent field only disables what depends on it.
// Tokens are those of gyrostat JSONL (design.md §8).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/archive.h"

namespace gyrostat::model {

enum class Attention : uint8_t { kUnknown, kMha, kGqa, kMqa, kMla };
enum class NormPlacement : uint8_t {
  kUnknown, kPost, kPre, kPeri, kReordered, kDeepnorm, kMix, kHybrid, kLayernormScaling, kResidualDual, kKeel,
};
enum class NormKind : uint8_t { kUnknown, kLayernorm, kRmsnorm };
// How norms apply their gain w: as w, or as 1 + w.
enum class NormGain : uint8_t { kUnknown, kPlain, kUnitOffset };
enum class QkNorm : uint8_t { kUnknown, kNone, kPerHead, kFlattened };
enum class ScheduleKind : uint8_t { kUnknown, kConst, kLinear, kCosine, kWsd, kNoam };

// How the attention maxima were made. A clip may come only from kExact or kLseUpper.
enum class LogitKind : uint8_t { kUnknown, kExact, kLseUpper, kSampledLower, kNormProduct };

struct AttnLogitInfo {
  LogitKind kind = LogitKind::kUnknown;
  bool scaled = false, masked = false, with_bias = false, pre_cap = false;
  bool operator==(const AttnLogitInfo&) const = default;
  template <class Archive>
  void Fields(Archive& a) { a(kind, scaled, masked, with_bias, pre_cap); }
};

// Token of the enumerator ("" for kUnknown), and back (kUnknown for strangers).
const char* Token(Attention v);
const char* Token(NormPlacement v);
const char* Token(NormKind v);
const char* Token(NormGain v);
const char* Token(QkNorm v);
const char* Token(ScheduleKind v);
const char* Token(LogitKind v);
Attention AttentionOf(const std::string& token);
NormPlacement NormPlacementOf(const std::string& token);
NormKind NormKindOf(const std::string& token);
NormGain NormGainOf(const std::string& token);
QkNorm QkNormOf(const std::string& token);
ScheduleKind ScheduleKindOf(const std::string& token);
LogitKind LogitKindOf(const std::string& token);

struct ModelSpec {
  uint32_t layers = 0;       // 0: not known. At most kLayersMax.
  uint32_t hidden_size = 0;
  uint32_t heads = 0;        // Query heads. At most kHeadsMax.
  uint32_t kv_heads = 0;     // 0: as many as heads.
  uint32_t head_dim = 0;
  Attention attention = Attention::kUnknown;
  NormKind norm_kind = NormKind::kUnknown;
  std::optional<double> norm_eps;
  NormGain norm_gain = NormGain::kUnknown;
  NormPlacement norm_placement = NormPlacement::kUnknown;
  std::optional<double> deepnorm_alpha, deepnorm_beta;
  QkNorm qk_norm = QkNorm::kUnknown;
  std::optional<double> logit_softcap;
  std::optional<bool> attention_bias;
  std::string activation, compute_dtype, optimizer, preset;
  ScheduleKind schedule_kind = ScheduleKind::kUnknown;
  std::optional<double> schedule_peak;
  std::optional<uint64_t> warmup_steps, total_steps;
  uint32_t vocab_size = 0;
  std::optional<bool> master_fp32;

  uint32_t KvHeads() const { return kv_heads == 0 ? heads : kv_heads; }
  bool operator==(const ModelSpec&) const = default;
  template <class Archive>
  void Fields(Archive& a) {
    a(layers, hidden_size, heads, kv_heads, head_dim, attention, norm_kind, norm_eps, norm_gain, norm_placement,
      deepnorm_alpha, deepnorm_beta, qk_norm, logit_softcap, attention_bias, activation, compute_dtype, optimizer,
      preset, schedule_kind, schedule_peak, warmup_steps, total_steps, vocab_size, master_fp32);
  }
};

inline constexpr uint32_t kLayersMax = 1024;
inline constexpr uint32_t kHeadsMax = 1024;

}  // namespace gyrostat::model
