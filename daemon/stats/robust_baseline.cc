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

// Between two reports of a run those of hundreds of others were judged, so all of its values are cold, and waiting for
// one line after the other costs more than the arithmetic (tests/bench/detect).
void Prefetch(const std::vector<double>& values) {
  constexpr size_t kValuesPerLine = 8;
  for (size_t i = 0; i < values.size(); i += kValuesPerLine) __builtin_prefetch(&values[i]);
}

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
  Prefetch(sorted_);
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

// The median, and the median distance from it: the values below it give one ascending row of distances, those above it
// another, and how many of the smallest come from which is found by halving.
void RobustBaseline::Summarise() {
  const size_t n = sorted_.size(), half = n / 2;
  median_ = n % 2 == 1 ? sorted_[half] : 0.5 * (sorted_[half - 1] + sorted_[half]);
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const auto below = [this, half](size_t i) { return median_ - sorted_[half - 1 - i]; };  // i < half.
  const auto above = [this, half](size_t i) { return sorted_[half + i] - median_; };      // i < n - half.
  const size_t taken = half + 1;
  size_t low = taken - std::min(taken, n - half), high = half;  // Of the taken ones, so many are below.
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (below(middle) < above(taken - middle - 1)) low = middle + 1; else high = middle;
  }
  size_t left = low, right = taken - low;
  const auto take = [&] {
    const double down = left > 0 ? below(left - 1) : kNone, up = right > 0 ? above(right - 1) : kNone;
    if (down >= up) --left; else --right;
    return std::max(down, up);
  };
  const double distance = take();
  mad_ = n % 2 == 1 ? distance : 0.5 * (take() + distance);
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
