#include "stats/roughness.h"

#include <algorithm>
#include <cmath>

namespace gyrostat::stats {
namespace {

// One over the root of what the inner nine tenths of a Gaussian's squares sum to: 0.9 - 2 * 1.645 phi(1.645).
constexpr double kTrimmedToSigma = 1.3355;

}  // namespace

Roughness::Roughness(uint32_t window) : window_(window) {
  ring_.reserve(window);
  scratch_.reserve(window);
}

void Roughness::Observe(double value) {
  if (!(value > 0) || !std::isfinite(value)) {
    has_previous_ = false;
    return;
  }
  const double now = std::log(value), difference = now - previous_;
  previous_ = now;
  if (!has_previous_) {
    has_previous_ = true;
    return;
  }
  const double square = 0.5 * difference * difference;
  if (ring_.size() < window_) {
    ring_.push_back(square);
    return;
  }
  ring_[next_] = square;
  next_ = (next_ + 1) % window_;
}

double Roughness::Over(uint32_t window) const {
  const auto known = static_cast<uint32_t>(ring_.size());
  if (window == 0 || known < window) return 0;
  scratch_.clear();
  // Newest last: until the ring is full it begins at 0.
  for (uint32_t i = known - window; i < known; ++i) scratch_.push_back(ring_[(next_ + i) % known]);
  const size_t kept = window - std::min(window - 1, std::max(2u, window / 10));
  const auto last = scratch_.begin() + static_cast<std::ptrdiff_t>(kept - 1);
  std::nth_element(scratch_.begin(), last, scratch_.end());
  const double largest = *last;
  // In the order of the ring, so that the sum has the same bits whatever nth_element left.
  double sum = 0;
  size_t below = 0;
  for (uint32_t i = known - window; i < known; ++i) {
    const double square = ring_[(next_ + i) % known];
    if (square >= largest) continue;
    sum += square;
    ++below;
  }
  sum += static_cast<double>(kept - below) * largest;
  return kTrimmedToSigma * std::sqrt(sum / window);
}

void Roughness::Clear() {
  ring_.clear();
  next_ = 0;
  has_previous_ = false;
}

}  // namespace gyrostat::stats
