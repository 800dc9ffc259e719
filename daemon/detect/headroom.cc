#include "detect/headroom.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "detect/scan.h"

namespace gyrostat::detect {
namespace {

using model::Severity;
using model::Signal;

// Largest finite values. An fp8 tensor carries a scale of its own, so that its format is no limit (methods.md §8.1).
constexpr double kHalfMax = 65504, kBfloatMax = 3.3895313892515355e38;
constexpr uint32_t kQuiet = 32;
// So far from the median of the newest three it is one report's word: the line would follow it for fit_reports.
constexpr double kStrayRatio = 4;
// Fewer points make no forecast.
constexpr size_t kFitMin = 32;

double RangeOf(const model::ModelSpec& spec) {
  if (spec.compute_dtype == "fp16") return kHalfMax;
  return spec.compute_dtype == "bf16" ? kBfloatMax : 0;
}

}  // namespace

Headroom::Headroom(const HeadroomOptions& options, const model::ModelSpec& spec)
    : options_(options),
      spec_(spec),
      range_(RangeOf(spec)),
      gaussian_(spec.hidden_size > 1 ? std::sqrt(2 * std::log(spec.hidden_size)) : 0) {}

uint32_t Headroom::LayerAt(size_t at, size_t size) const {
  const bool boundaries = spec_.layers > 0 && size == spec_.layers + size_t{1};
  return static_cast<uint32_t>(boundaries && at > 0 ? at - 1 : at);
}

// What block l adds lies on boundary l + 1 where boundaries are reported, on output l otherwise.
Headroom::Look Headroom::LookAt(const model::Report& report) const {
  Look look;
  std::span<const float> entries = report.Array(Signal::kHiddenAbsmax);
  if (entries.empty() && gaussian_ > 0) {
    entries = report.Array(Signal::kHiddenMs);
    look.estimated = true;
  }
  const std::span<const float> attention = report.Array(Signal::kAttnOutMs), mlp = report.Array(Signal::kMlpOutMs);
  look.size = entries.size();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!IsFinite(entries[i]) || entries[i] < 0) continue;
    double here = look.estimated ? gaussian_ * std::sqrt(static_cast<double>(entries[i])) : entries[i];
    for (const std::span<const float> branch : {attention, mlp}) {
      const size_t shift = branch.size() < entries.size() ? 1 : 0;
      if (i < shift || i - shift >= branch.size()) continue;
      const float ms = branch[i - shift];
      if (!look.estimated && IsFinite(ms) && ms > 0) here = std::max(here, entries[i] + gaussian_ * std::sqrt(ms));
    }
    if (here >= options_.warning_share * range_) ++look.high;
    if (here > look.largest) look.largest = here, look.at = i;
  }
  return look;
}

std::optional<stats::GrowthFit> Headroom::Fit(model::Step step, double largest) {
  if (state_.steps.empty()) {
    state_.steps.reserve(options_.fit_reports);
    state_.logs.reserve(options_.fit_reports);
  } else if (state_.steps.size() >= options_.fit_reports) {
    const auto old = static_cast<std::ptrdiff_t>(state_.steps.size() + 1 - options_.fit_reports);
    state_.steps.erase(state_.steps.begin(), state_.steps.begin() + old);
    state_.logs.erase(state_.logs.begin(), state_.logs.begin() + old);
  }
  state_.recent.Observe(std::log(largest));
  const double usual = state_.recent.median();
  const bool stray = std::fabs(std::log(largest) - usual) > std::log(kStrayRatio);
  state_.steps.push_back(static_cast<double>(step));
  state_.logs.push_back(stray ? usual : std::log(largest));
  if (state_.steps.size() < kFitMin || largest < options_.forecast_share * range_) return std::nullopt;
  return stats::FitGrowth(state_.steps, state_.logs);
}

std::optional<Severity> Headroom::SeverityOf(double largest, const std::optional<stats::GrowthFit>& fit) {
  const std::optional<double> soonest =
      fit && fit->Rising() ? fit->StepsToAtSoonest(range_) : std::optional<double>();
  const bool near = soonest && *soonest < options_.near_steps;
  const auto count = [](uint32_t* run, bool yes) { *run = yes ? Saturating(*run) : 0; };
  count(&state_.critical_run, largest >= options_.critical_share * range_ ||
                                  (near && largest >= options_.warning_share * range_));
  count(&state_.high_run, largest >= options_.warning_share * range_);
  count(&state_.forecast_run, soonest && *soonest < options_.horizon_steps);
  if (state_.critical_run >= options_.level_reports) return Severity::kCritical;
  if (state_.high_run >= options_.level_reports) return Severity::kWarning;
  if (state_.forecast_run >= options_.forecast_reports) return Severity::kWarning;
  // Once said, it lasts until the stream is clearly below the level again.
  if (state_.overflow.open() && largest >= 0.5 * options_.warning_share * range_) return Severity::kWarning;
  return std::nullopt;
}

void Headroom::Fill(const Look& look, const std::optional<stats::GrowthFit>& fit, model::Finding* finding) const {
  finding->signal = look.estimated ? Signal::kHiddenMs : Signal::kHiddenAbsmax;
  finding->layer = LayerAt(look.at, look.size);
  finding->value = look.largest;
  finding->expected = range_;
  finding->recommend = model::InterventionKind::kLrScale;
  finding->message = Sentence("The residual stream of layer %u reaches %.4g of %s's %g%s; %s above %g of the range.",
                              *finding->layer, look.largest, spec_.compute_dtype.c_str(), range_,
                              look.estimated ? " (estimated from its RMS)" : "",
                              Counted(look.high, "layer").c_str(), options_.warning_share);
  if (!fit || !fit->Rising()) return;
  const std::optional<double> steps = fit->StepsTo(range_), soonest = fit->StepsToAtSoonest(range_);
  if (steps && soonest)
    finding->message += Sentence(" At this rate it overflows in %.0f steps, at the soonest in %.0f.", *steps, *soonest);
}

void Headroom::ObserveOverflow(const model::Report& report, std::vector<model::Finding>* out) {
  const Look look = LookAt(report);
  if (!(look.largest > 0)) return;
  const std::optional<stats::GrowthFit> fit = Fit(report.step, look.largest);
  state_.overflow.Observe(
      SeverityOf(look.largest, fit), {.hold = 1, .quiet = kQuiet}, {name(), report.step, &state_.next_key, out},
      [&](model::Finding* finding) { Fill(look, fit, finding); },
      [&] { return Sentence("The largest entry of the residual stream is %.4g again, %s ends at %g.", look.largest,
                            spec_.compute_dtype.c_str(), range_); });
}

void Headroom::ObserveEps(const model::Report& report, std::vector<model::Finding>* out) {
  const std::span<const float> sums = report.Array(Signal::kLnInputMs);
  const Signal signal = sums.empty() ? Signal::kHiddenMs : Signal::kLnInputMs;
  const std::span<const float> values = report.Array(signal);
  size_t smallest = values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!IsFinite(values[i]) || values[i] < 0) continue;
    if (smallest == values.size() || values[i] < values[smallest]) smallest = i;
  }
  if (smallest == values.size()) return;
  const double ms = values[smallest], eps = *spec_.norm_eps;
  std::optional<Severity> severity;
  if (eps > options_.eps_info * ms) severity = Severity::kInfo;
  if (eps > options_.eps_warning * ms) severity = Severity::kWarning;
  state_.swamped.Observe(
      severity, {.hold = options_.eps_reports, .quiet = kQuiet}, {name(), report.step, &state_.next_key, out},
      [&](model::Finding* finding) {
        finding->signal = signal;
        finding->layer = LayerAt(smallest, values.size());
        finding->value = ms;
        finding->expected = eps / options_.eps_info;
        finding->message = Sentence("What enters the norm of layer %u has mean square %.3g, near the norm's eps %.3g: "
                                    "its output is %.3g of what it should be.",
                                    *finding->layer, ms, eps, 1 / std::sqrt(1 + eps / ms));
      },
      [&] { return Sentence("What enters the norms is well above their eps again."); });
}

void Headroom::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  if (range_ > 0) ObserveOverflow(report, out);
  if (spec_.norm_eps && *spec_.norm_eps > 0) ObserveEps(report, out);
}

void Headroom::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  state_.steps.clear();
  state_.logs.clear();
  state_.recent.Clear();
  state_.forecast_run = 0;
  if (kind == Break::kIntervention) return;  // Levels are absolute.
  state_.overflow.Break(EndedBy(kind, step), out);
  state_.swamped.Break(EndedBy(kind, step), out);
  state_.critical_run = state_.high_run = 0;
}

std::optional<double> Headroom::StepsLeft() const {
  if (!(range_ > 0) || state_.steps.size() < kFitMin) return std::nullopt;
  const std::optional<stats::GrowthFit> fit = stats::FitGrowth(state_.steps, state_.logs);
  if (!fit || !fit->Rising()) return std::numeric_limits<double>::infinity();
  return fit->StepsToAtSoonest(range_).value_or(std::numeric_limits<double>::infinity());
}

}  // namespace gyrostat::detect
