#include "ctl/axis.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "ctl/html.h"

namespace gyrostat::ctl {
namespace {

constexpr double kLogFromRatio = 30;
constexpr size_t kTicksEnough = 3;  // A log axis of fewer powers of ten has ticks between them.
constexpr double kLogRoundedBelowRatio = 20;  // Beyond, there are ticks enough between the ends.
constexpr double kTicksOfEnds = 5;

// The first of 1, 2, 5, 10 times a power of ten that is not below.
double RoundUp(double raw) {
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double each : {1.0, 2.0, 5.0})
    if (each * power >= raw * (1 - 1e-9)) return each * power;
  return 10 * power;
}

double RoundDown(double raw) {
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double each : {5.0, 2.0})
    if (each * power <= raw * (1 + 1e-9)) return each * power;
  return power;
}

// Multiples of a round distance within [low, high].
std::vector<double> RoundPlaces(double low, double high, int wanted) {
  const double distance = RoundUp((high / 2 - low / 2) / wanted * 2);
  std::vector<double> places;
  if (!(distance > 0) || !std::isfinite(distance)) return places;
  const double from = std::ceil(low / distance - 1e-9);
  for (int i = 0; i <= 4 * wanted; ++i) {
    const double place = (from + i) * distance;
    if (place > high + distance * 1e-6) break;
    places.push_back(std::abs(place) < distance * 1e-9 ? 0 : place);
  }
  return places;
}

std::vector<double> Powers(double low, double high, int wanted) {
  const double first = std::ceil(std::log10(low) - 1e-9), last = std::floor(std::log10(high) + 1e-9);
  const double stride = std::max(1.0, std::ceil((last - first) / wanted));
  std::vector<double> places;
  for (double power = first; power <= last; power += stride) places.push_back(std::pow(10.0, power));
  return places;
}

std::vector<double> OnesTwosFives(double low, double high) {
  std::vector<double> places;
  const double first = std::max(std::pow(10.0, std::floor(std::log10(low))), DBL_MIN);  // Below, 10^n is 0.
  for (double power = first; power <= high; power *= 10)
    for (const double each : {power, 2 * power, 5 * power})
      if (each >= low * (1 - 1e-9) && each <= high * (1 + 1e-9)) places.push_back(each);
  return places;
}

}  // namespace

void Extent::Add(double value) {
  if (!std::isfinite(value)) return;
  low = any ? std::min(low, value) : value;
  high = any ? std::max(high, value) : value;
  any = true;
  if (value > 0) low_positive = low_positive > 0 ? std::min(low_positive, value) : value;
}

ValueAxis::ValueAxis(const Extent& extent, ScaleKind kind) {
  if (!extent.any) return;
  low_ = extent.low;
  high_ = extent.high;
  log_ = kind == ScaleKind::kLogarithmic ? extent.low_positive > 0 && extent.low_positive < extent.high
                                         : kind == ScaleKind::kByRange && low_ > 0 && high_ / low_ > kLogFromRatio;
  if (log_) {
    low_ = extent.low_positive;
    return;
  }
  if (!(low_ < high_)) {
    const double pad = low_ == 0 ? 1 : std::abs(low_) * 0.1;
    low_ -= pad;
    high_ += pad;
  }
}

ValueAxis ValueAxis::Rounded() const {
  ValueAxis wider = *this;
  if (log_ && high_ / low_ < kLogRoundedBelowRatio) {
    const double top = RoundUp(high_), foot = RoundDown(low_);
    if (std::isfinite(top) && foot > 0 && foot < top) wider.low_ = foot, wider.high_ = top;
    return wider;
  }
  const double distance = RoundUp((high_ / 2 - low_ / 2) / kTicksOfEnds * 2);
  const double low = std::floor(low_ / distance + 1e-9) * distance;
  const double high = std::ceil(high_ / distance - 1e-9) * distance;
  if (log_ || !std::isfinite(low) || !std::isfinite(high) || !(low < high)) return wider;
  wider.low_ = low;
  wider.high_ = high;
  return wider;
}

double ValueAxis::Share(double value) const {
  if (std::isnan(value)) return 0;
  if (log_ && !(value > 0)) return 0;
  // Halves: the range of two huge values is finite.
  const double share = log_ ? (std::log(value) - std::log(low_)) / (std::log(high_) - std::log(low_))
                            : (value / 2 - low_ / 2) / (high_ / 2 - low_ / 2);
  return std::clamp(share, 0.0, 1.0);
}

double ValueAxis::At(double share) const {
  if (log_) return std::exp(std::log(low_) + share * (std::log(high_) - std::log(low_)));
  return low_ + share * (high_ / 2 - low_ / 2) * 2;
}

std::vector<Tick> ValueAxis::Ticks(int wanted) const {
  std::vector<double> places;
  if (log_) places = Powers(low_, high_, wanted);
  if (log_ && places.size() < kTicksEnough) places = OnesTwosFives(low_, high_);
  if (places.size() < kTicksEnough) places = RoundPlaces(low_, high_, wanted);
  std::vector<Tick> ticks;
  for (const double place : places) ticks.push_back({Share(place), ShortNumber(place)});
  return ticks;
}

double StepAxis::Share(model::Step step) const {
  const double span = std::max(static_cast<double>(last_) - static_cast<double>(first_), 1.0);
  return std::clamp((static_cast<double>(step) - static_cast<double>(first_)) / span, 0.0, 1.0);
}

std::vector<model::Step> StepAxis::TickSteps(int wanted) const {
  if (first_ >= last_) return {first_};
  std::vector<model::Step> steps;
  for (const double place : RoundPlaces(static_cast<double>(first_), static_cast<double>(last_), wanted)) {
    const auto step = static_cast<model::Step>(std::llround(place));
    if (std::abs(place - static_cast<double>(step)) < 1e-6) steps.push_back(step);  // There is no step 2.5.
  }
  return steps;
}

std::vector<Tick> StepAxis::Ticks(int wanted) const {
  std::vector<Tick> ticks;
  for (const model::Step step : TickSteps(wanted)) ticks.push_back({Share(step), StepLabel(step)});
  return ticks;
}

std::string StepLabel(model::Step step) {
  if (step >= 10000000 && step % 100000 == 0) return Format("%gM", static_cast<double>(step) / 1e6);
  if (step >= 10000 && step % 100 == 0) return Format("%gk", static_cast<double>(step) / 1e3);
  return std::to_string(step);
}

}  // namespace gyrostat::ctl
