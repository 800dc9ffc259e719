// What a series usually is, and how far a value is from that: median and MAD (x 1.4826) of the last N values.
//
// The idea: mean and standard deviation absorb the very outliers they should show, so that one bad value hides the
// next; order statistics break only when half of the window is bad. A value enters winsorised (pulled to within a few
// deviations of the median), so a burst widens the scale slowly. The caller chooses the domain: ln(x) for norms, x
// for a loss.
//
// Pure; same values, same bits, also across save and load. Not thread-safe. Observe does not allocate; O(N), N small.
#pragma once

#include <cstdint>
#include <vector>

#include "base/archive.h"

namespace gyrostat::stats {

// Below this many values nothing relative is said: the exact limit for so few is larger than any real spike.
inline constexpr uint32_t kBaselineCountMin = 32;

// The number of deviations that means, with `count` values known, what `z` deviations mean with endless ones: the
// Gaussian prediction limit t(count-1, p) sqrt(1 + 1/count), from the table for p = 1e-9 (z = 6), interpolated in
// 1/count. Infinite below 8 values.
double SmallSampleLimit(double z, uint32_t count);

struct RobustBaselineOptions {
  uint32_t window = 256;   // [4, 4096].
  double winsor_mads = 3;  // Values enter no further than this many deviations from the median; 0: as they are. >= 0.
  double sigma_min = 0;    // The scale is never below this: a flat series must not make noise a spike. >= 0.
};

class RobustBaseline {
 public:
  explicit RobustBaseline(RobustBaselineOptions options);

  // The value must be finite. It is winsorised once there are kBaselineCountMin values (or a full, shorter window),
  // unless the scale is 0: a series that was flat must be able to move.
  void Observe(double value);

  uint32_t count() const { return static_cast<uint32_t>(ring_.size()); }
  double median() const { return median_; }  // 0 while empty.
  double highest() const { return sorted_.empty() ? 0 : sorted_.back(); }  // 0 while empty.
  double sigma() const;                      // 1.4826 MAD, at least sigma_min.
  // (value - median) / sigma; infinite where sigma is 0 and value is not the median.
  double Z(double value) const;

  void Clear();

  template <class Archive>
  void Fields(Archive& a) {
    a(ring_, next_);
    if constexpr (Archive::kLoading)
      if (!Rebuild()) a.Fail();
  }

 private:
  void Replace(double out, double in);
  void Summarise();
  bool Rebuild();

  RobustBaselineOptions options_;
  std::vector<double> ring_;  // Oldest at next_ once full.
  uint32_t next_ = 0;
  // Derived.
  std::vector<double> sorted_;
  double median_ = 0, mad_ = 0;
};

}  // namespace gyrostat::stats
