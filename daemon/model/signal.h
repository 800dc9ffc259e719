// The signals of design.md §4: name, number on the wire and on disk, shape. Numbers never change and are never reused.
#pragma once

#include <cfloat>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace gyrostat::model {

// "Not measured there": distinct from zero, and from NaN, which is a measured value. JSON shows it as null.
inline constexpr float kAbsent = -FLT_MAX;
inline constexpr bool IsAbsent(double value) { return value == static_cast<double>(kAbsent); }

enum class Shape : uint8_t {
  kScalar,
  kLayer,      // One value per layer.
  kBoundary,   // Layers + 1 (boundaries 0..L of the residual stream) or layers (outputs of the blocks); the length
               // tells.
  kLayerHead,  // Layers × heads, layer-major.
  kLayerOrLayerHead,
  kRankDigest,  // kRankDigestFields values for each of up to kRankSlotsMax ranks.
};

// One rank's slot in `rank_digest`, in this order: rank, loss, gradient norm before any reduction, step time in ms,
// weight checksum (24 bits, so that a float holds it exactly). Absent where not measured. Above kRankSlotsMax ranks the
// slots rotate, which is why each names its rank.
inline constexpr uint32_t kRankDigestFields = 5;
inline constexpr uint32_t kRankSlotsMax = 64;

// Do not change the values: they reach wire and disk.
enum class Signal : uint8_t {
  kNone = 0,
  kLoss = 1,                 // Nats per token.
  kLearningRate = 2,         // As used in this step.
  kGradNorm = 3,             // Global L2 before clipping, loss scale divided out.
  kEmbeddingGradNorm = 4,
  kOutputGradNorm = 5,
  kOutputLogitAbsmax = 6,
  kLogZ = 7,                 // Mean log partition of the output softmax.
  kLossScale = 8,
  kSpikeScoreLoss = 9,       // Percent, methods.md §1.4.
  kSpikeScoreGradNorm = 10,
  kQkRatio = 11,             // Largest RMS(W_k) / RMS(W_q), either way round, among clipped layers.
  kScalarEnd = 12,           // One past the last scalar.

  kLayerGradNorm = 32,
  kHiddenMs = 33,            // Mean over tokens of |x|^2 / d of the residual stream.
  kHiddenAbsmax = 34,
  kAttnOutMs = 35,           // What is really added to the stream.
  kMlpOutMs = 36,
  kLnInputMs = 37,           // Post-norm: the sum before the closing norm.
  kAttnLogitMax = 38,        // Largest softmax input per head: scaled, masked, before soft-cap.
  kCrossAttnLogitMax = 39,
  kUpdateRms = 40,
  kParamNorm = 41,
  kAttnEntropy = 42,
  kNonfinite = 43,           // Count of NaN and Inf per layer's output.
  kRankDigest = 44,          // What each rank saw by itself; finds the one that disagrees.
  kArrayEnd = 45,            // One past the last array.
};

inline constexpr int kScalarSlots = static_cast<int>(Signal::kScalarEnd);
inline constexpr int kArrayFirst = static_cast<int>(Signal::kLayerGradNorm);
inline constexpr int kArraySlots = static_cast<int>(Signal::kArrayEnd) - kArrayFirst;

struct SignalInfo {
  Signal signal;
  std::string_view name;  // As in design.md §4; what --json, JSONL and the C ABI call it.
  Shape shape;
};

// All signals in order of their numbers.
std::span<const SignalInfo> Signals();

// The entry of `signal`, or of the name; null when there is none.
const SignalInfo* FindSignal(Signal signal);
const SignalInfo* FindSignal(std::string_view name);
std::string_view SignalName(Signal signal);  // "" for kNone and strangers.

inline constexpr bool IsScalar(Signal s) { return s > Signal::kNone && s < Signal::kScalarEnd; }
inline constexpr bool IsArray(Signal s) { return s >= Signal::kLayerGradNorm && s < Signal::kArrayEnd; }

}  // namespace gyrostat::model
