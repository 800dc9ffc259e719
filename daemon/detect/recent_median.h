// The median of the newest few values: what one wild value among them, or two of five, cannot move.
//
// The lower one of the two in the middle where their number is even, so that few values are not hasty. Pure; not
// thread-safe; allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace gyrostat::detect {

template <uint32_t kKept>
class RecentMedian {
 public:
  void Observe(double value) {  // Must not be NaN.
    values_[next_] = value;
    next_ = (next_ + 1) % kKept;
    known_ = std::min(known_ + 1, kKept);
  }
  bool known() const { return known_ > 0; }
  double median() const {  // Where known.
    std::array<double, kKept> sorted = values_;
    std::sort(sorted.begin(), sorted.begin() + known_);
    return sorted[(known_ - 1) / 2];
  }
  void Clear() { *this = {}; }

  template <class Archive>
  void Fields(Archive& a) {
    a(values_, known_, next_);
    if constexpr (Archive::kLoading)
      if (known_ > kKept || next_ >= kKept) a.Fail();
  }

 private:
  std::array<double, kKept> values_{};  // A ring, filled from the start.
  uint32_t known_ = 0, next_ = 0;
};

}  // namespace gyrostat::detect
