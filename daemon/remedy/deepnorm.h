// DeepNorm (Wang et al., arXiv 2203.00555): its constants, and what changing alpha or beta of a running post-norm model
// means. x_(l+1) = LN(alpha x_l + G_l(x_l)). Source of every rule here: methods.md §4, protocol.md §7.
//
// Raising alpha is function-changing: it scales every branch of the layer by alpha_old / alpha_new. It is ramped, and
// becomes part of the checkpoint. The function-preserving variant rescued nothing and is not built.
//
// Pure; thread-safe but for the registers; no allocation but in sentences. What touches weights (AlphaAt, BetaFactor,
// FoldFactor) uses integers and IEEE division alone: the same bits on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/archive.h"
#include "model/ids.h"
#include "remedy/ticks.h"

namespace gyrostat::remedy {

enum class DeepNormArch : uint8_t { kEncoder, kDecoder, kEncoderDecoder };

struct DeepNormConstants {
  double alpha = 1, beta = 1;
  // The paper's bound on the model update in units of what it publishes: 1 as published (1.012 for the encoder of an
  // encoder-decoder, whose constants it rounds), more is weaker.
  double budget = 1;
};
struct DeepNorm {
  std::optional<DeepNormConstants> encoder, decoder;  // As the architecture has them.
};

// Figure 2 of the paper. `layers` of the encoder (or of the only stack), `decoder_layers` of the decoder, which only
// kEncoderDecoder has (0 elsewhere); each 1 to 100,000. Nothing, and a sentence, for others.
std::optional<DeepNorm> DeepNormFor(DeepNormArch arch, uint64_t layers, uint64_t decoder_layers, std::string* why);

// sublayers * (v^2 + w^2) / alpha^2 with v = w = beta (App. C): the update budget of a stack by itself. Two sub-layers
// a layer, three in a decoder that also attends to an encoder.
double UpdateBudget(uint64_t sublayers, double alpha, double beta);

// The relative change of a layer's normalised output per unit of ln(alpha), for a branch of relative size
// rho = |G| / |alpha x|, orthogonal to x: rho / (1 + rho^2), at most 1/2. What the first use is checked against.
double AlphaSensitivity(double rho);

inline constexpr uint32_t kAlphaRampDefault = 50;  // Boundaries; measured on dead_post_ln, protocol.md §7.3 ...
inline constexpr uint32_t kAlphaRampMax = 200;     // ... where slower ramps rescued less and less.
inline constexpr double kAlphaStepMax = 5;         // |delta ln alpha| <= ln 5 in one order.
inline constexpr double kBetaFactorMin = 0.1;      // As much as one clip may take.

// Alpha of one sub-layer, on its way. Geometric: from (to / from)^(k / length), k boundaries after `first`.
struct AlphaRamp {
  double from = 1, to = 1;        // Finite, above 0.
  model::Boundary first = 0;      // Up to here alpha is `from`.
  uint32_t length = kAlphaRampDefault;  // From `first` + length on it is `to`, exactly.

  bool operator==(const AlphaRamp&) const = default;
  template <class Archive>
  void Fields(Archive& a) { a(from, to, first, length); }
};

// Alpha at that boundary, the same bits on every machine; between `from` and `to`, monotone.
double AlphaAt(const AlphaRamp& ramp, model::Boundary at);

// One sub-layer's alpha. The same on every rank.
class AlphaRegister {
 public:
  explicit AlphaRegister(double alpha = 1) : ramp_{alpha, alpha, 0, 0} {}

  double At(model::Boundary at) const { return AlphaAt(ramp_, at); }
  bool Ramping(model::Boundary at) const { return at < ramp_.first || at - ramp_.first < ramp_.length; }
  uint64_t version() const { return version_; }
  const AlphaRamp& ramp() const { return ramp_; }

  // Empty: alpha goes to `to` over `length` boundaries from `at` on. Otherwise nothing changed, and why: out of bounds
  // (refused, never clamped), still on the last ramp, or `expected` is not the version.
  std::string Write(double to, uint32_t length, model::Boundary at, uint64_t expected);

  template <class Archive>
  void Fields(Archive& a) {
    a(version_, ramp_);
    if constexpr (Archive::kLoading)
      if (!IsSound()) a.Fail();
  }

 private:
  bool IsSound() const;
  uint64_t version_ = 0;
  AlphaRamp ramp_;
};

// The residual branches' weights, as a factor B on what the job's own initialisation made: W_v (its rows of a fused
// QKV), W_o, W_1, W_2, a gate's W_3, and the biases of the output maps W_o and W_2 (methods.md §4.2; not Q and K). All
// at one boundary; B never rises.
class BetaRegister {
 public:
  double value() const { return value_; }
  uint64_t version() const { return version_; }

  // Empty: `*factor` in (0, 1] goes on the weights and the register stands at `to`. Otherwise nothing changed, and why.
  std::string Write(double to, uint64_t expected, float* factor);

  template <class Archive>
  void Fields(Archive& a) {
    a(version_, value_);
    if constexpr (Archive::kLoading)
      if (!(value_ > 0 && value_ <= 1)) a.Fail();
  }

 private:
  uint64_t version_ = 0;
  double value_ = 1;
};

// At export: W_o, b_o, W_2 and b_2 of a sub-layer times this restore the declared alpha with the same function (up to
// the norm's eps). Nothing unless both are finite and above 0.
std::optional<float> FoldFactor(double declared_alpha, double alpha);

}  // namespace gyrostat::remedy
