#include "detect/discontinuity.h"

#include <algorithm>
#include <cmath>

#include "detect/text.h"

namespace gyrostat::detect {
namespace {

constexpr double kShareOfHighest = 0.05;

}  // namespace

// A jump before the value has settled moves the reference and starts the count again.
bool Discontinuity::Setting::Jumps(double value, double ratio, uint32_t settled_min) {
  undone = false;
  if (!(value > 0) || !std::isfinite(value)) return false;
  highest = std::max(highest, value);
  const bool jumped = last > 0 && std::fabs(std::log(value / last)) > std::log(ratio) &&
                      std::fabs(value - last) >= kShareOfHighest * highest;
  const bool counts = jumped && settled >= settled_min;
  undone = jumped && !counts && before > 0 && std::fabs(std::log(value / before)) <= std::log(ratio);
  if (counts) before = last;
  last = value;
  settled = jumped ? 0 : Saturating(settled);
  return counts;
}

bool Discontinuity::Observe(const model::Report& report) {
  const double rate = report.Scalar(model::Signal::kLearningRate);
  const bool rate_jumped = rate_.Jumps(rate, options_.rate_ratio, options_.settled_reports);
  bool tokens_jumped = false;
  for (const auto& [name, value] : report.user)
    if (name == "tokens") tokens_jumped = tokens_.Jumps(value, options_.tokens_ratio, options_.settled_reports);
  return rate_jumped || tokens_jumped;
}

void Discontinuity::Clear() { rate_ = tokens_ = Setting(); }

}  // namespace gyrostat::detect
