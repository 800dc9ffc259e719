// How much a positive series changes from one value to the next: the deviation of the first differences of ln(value),
// divided by sqrt 2, so that independent values of deviation s have roughness s, whatever the trend.
//
// Trimmed: the largest tenth of the differences (two at least) is left out, and the rest scaled to what it would be of
// a Gaussian, so that a few single outliers make nothing rough. What repeats does. Sources: von Neumann (1941) for the
// differences; Huber, Robust Statistics, §5 for trimming a scale.
//
// Pure; same values, same bits, also across save and load. Not thread-safe. Observe does not allocate; Over costs
// O(window).
#pragma once

#include <cstdint>
#include <vector>

#include "base/archive.h"

namespace gyrostat::stats {

class Roughness {
 public:
  // Differences of the last `window` values are kept. [4, 4096].
  explicit Roughness(uint32_t window);

  // Zero, negative, NaN and Inf leave a hole, which no difference spans.
  void Observe(double value);
  void Gap() { has_previous_ = false; }  // The next value is compared with none.
  // Of the last `window` differences, at most as many as are kept; 0 until there are so many.
  double Over(uint32_t window) const;
  void Clear();

  template <class Archive>
  void Fields(Archive& a) {
    a(ring_, next_, previous_, has_previous_);
    if constexpr (Archive::kLoading)
      if (ring_.size() > window_ || next_ >= window_) a.Fail();
  }

 private:
  uint32_t window_;
  std::vector<double> ring_;  // Squares of differences over sqrt 2; oldest at next_ once full.
  uint32_t next_ = 0;
  double previous_ = 0;  // ln(value).
  bool has_previous_ = false;
  mutable std::vector<double> scratch_;
};

}  // namespace gyrostat::stats
