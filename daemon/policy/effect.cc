#include "policy/effect.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "policy/words.h"

namespace gyrostat::policy {
namespace {

using model::Outcome;

constexpr size_t kWindowMin = 20, kWindowMax = 200;
constexpr double kToSigma = 1.4826;   // Of a median absolute deviation, for normal noise.
constexpr double kSpreadFloor = 0.02; // Of a loss in nats, of a norm a fiftieth: less is nothing to people.

double SpreadOf(const std::vector<double>& values, double median) {
  std::vector<double> off;
  for (const double value : values)
    if (std::isfinite(value)) off.push_back(std::fabs(value - median));
  return std::max(kToSigma * MedianOf(std::move(off)), kSpreadFloor);
}

bool AllFinite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

// Of the last third: how it ends.
double EndOf(const std::vector<double>& values) {
  return MedianOf({values.end() - static_cast<std::ptrdiff_t>(std::max<size_t>(values.size() / 3, 1)), values.end()});
}

}  // namespace

size_t EffectWindow(uint64_t total_steps) {
  const size_t tenth = total_steps == 0 ? kWindowMax : static_cast<size_t>(std::min<uint64_t>(total_steps / 10, 200));
  return std::clamp(tenth, kWindowMin, kWindowMax);
}

void EffectWatch::Open(Terms terms, model::Boundary boundary) {
  *this = EffectWatch();
  gauge_ = terms.gauge;
  before_ = std::move(terms.before);
  window_ = terms.window;
  from_ = boundary + terms.skip + 1;
  open_ = true;
}

std::optional<Verdict> EffectWatch::Observe(model::Boundary boundary, const Levels& levels,
                                            std::optional<bool> still_there) {
  if (!open_ || boundary < from_) return std::nullopt;
  ++reports_;
  if (const std::optional<double> level = levels[static_cast<size_t>(gauge_) % kGauges]) {
    after_.push_back(*level);
    if (!std::isfinite(*level) && !before_.empty() && AllFinite(before_)) {
      open_ = false;
      return Verdict{Outcome::kHarmful, std::string("Harmful: ") + Words(gauge_) +
                                            " was finite before it and is " + Number(*level) + " now."};
    }
  }
  if (reports_ < window_) return std::nullopt;
  open_ = false;
  return AtEnd(still_there);
}

Verdict EffectWatch::AtEnd(std::optional<bool> still_there) const {
  if (before_.size() < kWindowMin || after_.size() < kWindowMin)
    return {Outcome::kInconclusive, "Inconclusive: " + Count(before_.size(), "value") + " of " + Words(gauge_) +
                                        " before it and " + std::to_string(after_.size()) +
                                        " after, wanted 20 on each side."};
  const double was = MedianOf(before_), is = MedianOf(after_);
  const double spread = std::max(SpreadOf(before_, was), SpreadOf(after_, is));
  const std::string levels = std::string(Words(gauge_)) + " stood at " + Shown(gauge_, was) + " in the " +
                             std::to_string(before_.size()) + " reports before it and at " + Shown(gauge_, is) +
                             " in the " + std::to_string(after_.size()) + " after";
  const double worst_before = *std::max_element(before_.begin(), before_.end());
  if (EndOf(after_) > worst_before + 3 * spread)
    return {Outcome::kHarmful, "Harmful: " + levels + ", and ends at " + Shown(gauge_, EndOf(after_)) +
                                   ", above all that it was before."};
  if (!still_there)
    return {Outcome::kInconclusive,
            "Inconclusive: " + levels + ". No finding called for it, so there is nothing to measure it by."};
  if (is < was - spread / 2) return {Outcome::kEffective, "Effective: " + levels + "."};
  if (!*still_there && EndOf(after_) <= EndOf(before_) + spread)
    return {Outcome::kEffective, "Effective: what called for it is over; " + levels + "."};
  return {Outcome::kIneffective, "Ineffective: " + levels + (*still_there ? ", and what called for it goes on." : ".")};
}

}  // namespace gyrostat::policy
