#include "stats/climb.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gyrostat::stats {
namespace {

constexpr double kMedianError = 1.2533;  // Of a Gaussian sample's median, in sigma / sqrt(n).
// Table of SmallSampleLimit: what 6 deviations become.
constexpr double kReference = 6;
constexpr size_t kHold = 4;  // Levels; half of the shortest window in use, which a burst of four bends for two.

}  // namespace

Climb::Climb(ClimbOptions options)
    : options_(options),
      level_({.window = options.window, .winsor_mads = 0, .sigma_min = 0}),
      differences_({.window = options.noise_window, .winsor_mads = 3, .sigma_min = 0}) {
  held_.reserve(kHold);
}

void Climb::Observe(double value) {
  if (has_previous_) differences_.Observe(value - previous_);
  previous_ = value;
  has_previous_ = true;
  level_.Observe(value);
  if (level_.count() < options_.window) return;
  if (held_.size() == kHold) held_.erase(held_.begin());
  held_.push_back(level_.median());
  if (held_.size() < kHold) return;
  const double highest = *std::max_element(held_.begin(), held_.end());
  lowest_ = known_ ? std::min(lowest_, highest) : highest;
  known_ = true;
}

double Climb::noise() const {
  return std::max(differences_.sigma() / std::sqrt(2.0), options_.noise_share * std::fabs(lowest_));
}

double Climb::Deviations() const {
  const double above = excess();
  if (!(above > 0)) return 0;
  const double widening = SmallSampleLimit(kReference, differences_.count()) / kReference;
  if (!std::isfinite(widening)) return 0;
  const double error = kMedianError * noise() / std::sqrt(static_cast<double>(options_.window)) * widening;
  return error > 0 ? above / error : std::numeric_limits<double>::infinity();
}

void Climb::Clear() {
  level_.Clear();
  differences_.Clear();
  previous_ = lowest_ = 0;
  held_.clear();
  has_previous_ = known_ = false;
}

}  // namespace gyrostat::stats
