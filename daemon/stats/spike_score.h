// OLMo 2's spike score (arXiv 2501.00656 §3.2), read as: the percentage of values that lie at least k standard
// deviations from the mean of the last N finite values before them. The client and the daemon both use this.
//
// The idea of the inside: mean and variance of a sliding window without ever subtracting what leaves it. The ring is
// cut where it wraps: the old part keeps the moments of every suffix, the new part those of its prefix, and the
// window is the merge of one of each. A value that has left therefore leaves no rounding behind, however large it
// was, and the window alone decides the bits: a score saved and loaded at any step goes on as if nothing had
// happened.
//
// Pure. Not thread-safe. Observe does not allocate; it costs O(1), and O(window) once per window.
// A value that was not measured (absent, DeepSpeed's gradient norm of -1) is not a value: do not feed it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/archive.h"

namespace gyrostat::stats {

struct SpikeScoreOptions {
  uint32_t window = 1000;        // Values in the baseline. [2, 1000000].
  double threshold_stds = 7;     // > 0.
  bool upper_only = false;       // False: either side.
  bool exclude_flagged = false;  // True: a spike does not enter the baseline. The paper's text keeps it.
  uint32_t horizon = 0;          // Score over the last this many evaluated steps; 0: over all. [0, 1000000].
  template <class Archive>
  void Fields(Archive& a) {
    a(window, threshold_stds, upper_only, exclude_flagged, horizon);
    if constexpr (Archive::kLoading)
      if (window < 2 || window > 1000000 || horizon > 1000000) a.Fail();
  }
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

  // Loading fails where the state does not fit the options that this score was made with.
  template <class Archive>
  void Fields(Archive& a) {
    a(values_, next_, evaluated_, spikes_, recent_, recent_next_);
    if constexpr (Archive::kLoading)
      if (!Rebuild()) a.Fail();
  }

 private:
  // Count, mean and sum of squared deviations.
  struct Moments {
    double count = 0, mean = 0, squares = 0;
    void Add(double value);
  };
  static Moments Merge(const Moments& a, const Moments& b);

  bool IsSpike(double value) const;
  void Store(double value);
  void Count(bool spike);
  void MakeSuffixes(size_t from);
  bool Rebuild();  // What is derived from values_ and recent_; false when they are impossible.

  SpikeScoreOptions options_;
  std::vector<double> values_;  // Ring; grows to the window, reserved at construction.
  uint32_t next_ = 0;           // Where the next value goes once the ring is full.
  uint64_t evaluated_ = 0, spikes_ = 0;
  std::vector<uint8_t> recent_;  // Ring of flags of the last `horizon` evaluated steps.
  uint32_t recent_next_ = 0;
  // Derived.
  std::vector<Moments> suffix_;  // [i]: moments of values_[i..]; valid from next_ on while the ring is full.
  Moments prefix_;               // Moments of values_[..next_).
  uint32_t recent_spikes_ = 0;
};

}  // namespace gyrostat::stats
