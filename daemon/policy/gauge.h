// One number a report for what a finding watches, so that what was before an intervention can be compared with what
// came after. Every gauge but the loss is a natural logarithm: levels that differ by a factor differ by a sum. The
// higher, the worse.
//
// Pure; not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/finding.h"
#include "model/report.h"

namespace gyrostat::policy {

// Do not change the values: they are saved.
enum class Gauge : uint8_t {
  kLoss = 0,            // Nats per token.
  kGradNorm = 1,
  kGradRatio = 2,       // Of the last block's gradient norm to the first's.
  kLayerGradNorm = 3,   // The largest among the blocks.
  kGradRoughness = 4,   // The largest change of a block's gradient norm between two reports: |difference of logs|.
  kLnInput = 5,         // The largest ln_input_ms.
  kHiddenAbsmax = 6,    // The largest; of hidden_ms where that alone is reported.
  kLogZ = 7,            // |log_z|, as it is.
  kLossScale = 8,       // Turned round: a low scale is bad.
  kUpdateRms = 9,       // The largest.
};
inline constexpr size_t kGauges = 10;

// For sentences: "the loss", "the ratio of the last block's gradient to the first's".
const char* Words(Gauge gauge);
// How a level is shown to people: a logarithm as what it is of.
std::string Shown(Gauge gauge, double level);
// What the finding watches; the loss where nothing else fits. (No maxima of attention logits: thousands of values a
// report, which qk_clip looks at.)
Gauge GaugeOf(const std::string& detector, model::Signal signal);

// Level of one report: nothing where it was not measured; NaN and infinities are levels.
using Levels = std::array<std::optional<double>, kGauges>;

class GaugeHistory {
 public:
  static constexpr size_t kKept = 200;  // Reports; the longest window of an outcome.

  // A report, in order. Returns its levels.
  Levels Observe(const model::Report& report);
  // Another history of the weights.
  void Clear();

  // The newest `count` levels, oldest first; fewer where there are fewer.
  std::vector<double> Newest(Gauge gauge, size_t count) const;

  template <class Archive>
  void Fields(Archive& a) { a(kept_, previous_norms_); }

 private:
  std::array<std::deque<float>, kGauges> kept_;
  std::vector<float> previous_norms_;  // Of the blocks' gradients.
};

// The median; 0 of nothing. Values that are not finite count as the largest.
double MedianOf(std::vector<double> values);

}  // namespace gyrostat::policy
