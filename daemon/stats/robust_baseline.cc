#include "stats/robust_baseline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace gyrostat::stats {
namespace {

// A Gaussian's standard deviation over its MAD.
constexpr double kMadToSigma = 1.4826;

// t(n-1, 1e-9) sqrt(1 + 1/n), with the Gaussian limit 5.998 for n = infinity.
struct Limit {
  uint32_t count;
  double deviations;
};
constexpr std::array kLimits = {Limit{8, 41},    Limit{16, 13.1}, Limit{32, 8.5},  Limit{64, 7.1},
                                Limit{128, 6.5}, Limit{256, 6.2}, Limit{1000, 6.1}};
constexpr double kLimitAtInfinity = 6.0;

}  // namespace

double SmallSampleLimit(double z, uint32_t count) {
  if (count < kLimits.front().count) return std::numeric_limits<double>::infinity();
  const double x = 1.0 / count;
  double x_above = 0, above = kLimitAtInfinity;  // The entry with more values.
  for (size_t i = kLimits.size(); i-- > 0;) {
    const double x_here = 1.0 / kLimits[i].count;
    if (x <= x_here) {
      const double share = (x - x_above) / (x_here - x_above);
      return z / kLimitAtInfinity * (above + (kLimits[i].deviations - above) * share);
    }
    x_above = x_here;
    above = kLimits[i].deviations;
  }
  return z / kLimitAtInfinity * above;
}

RobustBaseline::RobustBaseline(RobustBaselineOptions options) : options_(options) {
  ring_.reserve(options_.window);
  sorted_.reserve(options_.window);
}

double RobustBaseline::sigma() const { return std::max(kMadToSigma * mad_, options_.sigma_min); }

double RobustBaseline::Z(double value) const {
  const double distance = value - median_;
  return distance == 0 ? 0 : distance / sigma();
}

void RobustBaseline::Observe(double value) {
  const double reach = options_.winsor_mads * sigma();
  if (reach > 0 && count() >= std::min(kBaselineCountMin, options_.window)) {
    value = std::clamp(value, median_ - reach, median_ + reach);
  }
  value += 0.0;  // -0 becomes 0: the bits must not depend on the order in which equal values came.
  if (ring_.size() < options_.window) {
    ring_.push_back(value);
    sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), value), value);
  } else {
    Replace(ring_[next_], value);
    ring_[next_] = value;
    next_ = (next_ + 1) % options_.window;
  }
  Summarise();
}

// Moves what lies between the two places by one, rather than erasing and inserting.
void RobustBaseline::Replace(double out, double in) {
  const auto from = std::lower_bound(sorted_.begin(), sorted_.end(), out);
  if (in == out) return;
  if (in > out) {
    const auto to = std::lower_bound(from, sorted_.end(), in);
    std::move(from + 1, to, from);
    *(to - 1) = in;
  } else {
    const auto to = std::lower_bound(sorted_.begin(), from, in);
    std::move_backward(to, from, from + 1);
    *to = in;
  }
}

// The median, and the median distance from it by walking outwards from the middle on both sides.
void RobustBaseline::Summarise() {
  const size_t n = sorted_.size(), half = n / 2;
  median_ = n % 2 == 1 ? sorted_[half] : 0.5 * (sorted_[half - 1] + sorted_[half]);
  size_t below = half, above = half;  // Next candidates: sorted_[below - 1] and sorted_[above].
  double distance = 0, previous = 0;
  for (size_t k = 0; k <= half; ++k) {
    previous = distance;
    const double down = below > 0 ? median_ - sorted_[below - 1] : std::numeric_limits<double>::infinity();
    const double up = above < n ? sorted_[above] - median_ : std::numeric_limits<double>::infinity();
    distance = std::min(down, up);
    if (down <= up) --below; else ++above;
  }
  mad_ = n % 2 == 1 ? distance : 0.5 * (previous + distance);
}

void RobustBaseline::Clear() {
  ring_.clear();
  sorted_.clear();
  next_ = 0;
  median_ = mad_ = 0;
}

bool RobustBaseline::Rebuild() {
  const bool full = ring_.size() == options_.window;
  const bool possible = ring_.size() <= options_.window && (full ? next_ < options_.window : next_ == 0) &&
                        std::all_of(ring_.begin(), ring_.end(), [](double v) { return std::isfinite(v); });
  if (!possible || ring_.empty()) {
    Clear();
    return possible;
  }
  ring_.reserve(options_.window);
  sorted_.reserve(options_.window);
  sorted_.assign(ring_.begin(), ring_.end());
  std::sort(sorted_.begin(), sorted_.end());
  Summarise();
  return true;
}

}  // namespace gyrostat::stats
