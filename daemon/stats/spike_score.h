// OLMo 2's spike score (arXiv 2501.00656 §3.2), as methods.md §1.4 fixes it: the percentage of values that lie at least
// k standard deviations from the mean of the last N finite values before them. The client and the daemon both use this.
//
// Pure. Not thread-safe. Observe does not allocate. Same values, same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/archive.h"

namespace gyrostat::stats {

struct SpikeScoreOptions {
  uint32_t window = 1000;      // Values in the baseline. [2, 1000000].
  double threshold_stds = 7;   // > 0.
  bool upper_only = false;     // False: either side.
  uint32_t horizon = 0;        // Score over the last this many evaluated steps; 0: over all.
  template <class Archive>
  void Fields(Archive& a) { a(window, threshold_stds, upper_only, horizon); }
};

// (128, 6, upper, over 10,000): OLMo-core's monitor, for comparison. It flags a step when loss OR grad norm spikes.
SpikeScoreOptions OlmoCoreOptions();

class SpikeScore {
 public:
  explicit SpikeScore(SpikeScoreOptions options = {});

  // Feeds the value of the next step. True when it is a spike: the window is full and the value is far from its mean
  // (population std > 0), or the value is not finite. A non-finite value is never stored.
  bool Observe(double value);

  // Percent of evaluated steps (full window) that were spikes; 0 before there is one.
  double percent() const;
  uint64_t evaluated() const { return evaluated_; }
  uint64_t spikes() const { return spikes_; }

  template <class Archive>
  void Fields(Archive& a) {
    a(values_, next_, evaluated_, spikes_, recent_, recent_next_);
    if constexpr (Archive::kLoading) Rebuild();
  }

 private:
  void Rebuild();  // Sums from values_, exactly as Observe would hold them.

  SpikeScoreOptions options_;
  std::vector<double> values_;  // Ring; grows to the window, reserved at construction.
  uint32_t next_ = 0;
  uint64_t evaluated_ = 0, spikes_ = 0;
  std::vector<uint8_t> recent_;  // Ring of flags of the last `horizon` evaluated steps.
  uint32_t recent_next_ = 0;
  double sum_ = 0, sum_squares_ = 0, origin_ = 0;
  uint32_t since_rebuild_ = 0;
};

}  // namespace gyrostat::stats
