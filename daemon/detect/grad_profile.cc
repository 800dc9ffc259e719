#include "detect/grad_profile.h"

#include <algorithm>
#include <cmath>

#include "detect/scan.h"

namespace gyrostat::detect {
namespace {

using model::Severity;
using model::Signal;

constexpr uint32_t kSlopeWindow = 256;
// The smoothed slope forgets in so many reports.
constexpr double kSlopeReports = 16;
// A slope over fewer layers says nothing about depth.
constexpr size_t kSlopeLayersMin = 4;
// Deviations of the smoothed slope from its past.
constexpr double kSlopeSigmas = 6;
// Below the low limit for so many reports: the phase is over.
constexpr uint32_t kQuiet = 16;

bool IsNorm(float v) { return IsFinite(v) && v > 0; }

}  // namespace

GradProfile::State::State(const model::ModelSpec& spec)
    : warmup(spec), slopes({.window = kSlopeWindow, .winsor_mads = 3, .sigma_min = 1e-3}) {}

GradProfile::GradProfile(const GradProfileOptions& options, const model::ModelSpec& spec)
    : options_(options),
      spec_(spec),
      architecture_(model::ArchitectureOf(spec)),
      post_family_(architecture_.post_norm_family || architecture_.placement == model::NormPlacement::kMix),
      state_(spec) {}

void GradProfile::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  state_.warmup.Observe(report);
  const std::span<const float> norms = report.Array(Signal::kLayerGradNorm);
  if (norms.size() < 2) return;
  if (post_family_) ObserveCollapse(report, norms, out);
  else if (architecture_.gradient != model::GradientLaw::kUnknown) ObserveDrift(report, norms, out);
}

void GradProfile::ObserveCollapse(const model::Report& report, std::span<const float> norms,
                                  std::vector<model::Finding>* out) {
  if (!IsNorm(norms.front()) || !IsNorm(norms.back())) return;
  state_.ratios.Observe(std::log(static_cast<double>(norms.back()) / norms.front()));
  const double ratio = state_.ratios.median();
  const auto layers = static_cast<double>(norms.size());
  const bool low = ratio >= std::log(std::max(options_.low_ratio, options_.low_per_layer * layers));
  const bool high = ratio >= std::log(options_.high_per_layer * layers);
  state_.high_run = high ? Saturating(state_.high_run) : 0;
  std::optional<Severity> severity;
  if (low && (state_.warmup.rising() || state_.collapse.open())) severity = Severity::kInfo;
  if (state_.high_run >= options_.high_reports) severity = Severity::kWarning;
  if (state_.high_run >= options_.dead_reports) severity = Severity::kCritical;
  state_.collapse.Observe(
      severity, {.hold = 1, .quiet = kQuiet}, {name(), report.step, &state_.next_key, out},
      [&](model::Finding* finding) { FillCollapse(ratio, norms, finding); },
      [&] { return Sentence("The last block's gradient is %.3g times the first's: that is usual.", std::exp(ratio)); });
}

void GradProfile::FillCollapse(double ratio, std::span<const float> norms, model::Finding* finding) const {
  const auto layers = static_cast<double>(norms.size());
  const bool lasting = finding->severity >= Severity::kWarning;
  finding->signal = Signal::kLayerGradNorm;
  finding->layer = 0;
  finding->value = std::exp(ratio);
  finding->expected =
      lasting ? options_.high_per_layer * layers : std::max(options_.low_ratio, options_.low_per_layer * layers);
  finding->message = Sentence("The last block's gradient is %.3g times the first's, %zu layers, limit %.3g",
                              finding->value, norms.size(), finding->expected);
  const bool has_alpha = architecture_.placement == model::NormPlacement::kPost ||
                         architecture_.placement == model::NormPlacement::kDeepnorm;
  finding->recommend.reset();
  if (state_.warmup.rising()) {
    finding->recommend = model::InterventionKind::kWarmupExtension;
    finding->message += ": the warm-up is too fast for this placement, and the loss does not show it yet.";
  } else if (lasting && has_alpha) {
    finding->recommend = model::InterventionKind::kDeepnormAlpha;
    finding->message += ": the first blocks no longer learn; a longer warm-up is too late for that.";
  } else {
    finding->message += ".";
  }
  if (finding->severity == Severity::kCritical)
    finding->message += Sentence(" So for %u reports in a row.", state_.high_run);
}

// Least squares of ln D over the layers that have both values; nothing with fewer than kSlopeLayersMin.
std::optional<double> GradProfile::SlopeOf(const model::Report& report, std::span<const float> norms) const {
  const std::span<const float> hidden = report.Array(Signal::kHiddenMs);
  const bool boundaries = hidden.size() == norms.size() + 1;
  if (!boundaries && hidden.size() != norms.size()) return std::nullopt;
  const bool root_depth = architecture_.gradient == model::GradientLaw::kInverseStreamRootDepth;
  double count = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  for (size_t l = 0; l < norms.size(); ++l) {
    const float behind = hidden[boundaries ? l + 1 : l];
    if (!IsNorm(norms[l]) || !IsNorm(behind)) continue;
    const auto x = static_cast<double>(l);
    const double y = std::log(norms[l]) + 0.5 * std::log(behind) + (root_depth ? 0.5 * std::log(x + 1) : 0.0);
    count += 1, sum_x += x, sum_y += y, sum_xx += x * x, sum_xy += x * y;
  }
  const double spread = count * sum_xx - sum_x * sum_x;
  if (count < kSlopeLayersMin || !(spread > 0)) return std::nullopt;
  return (count * sum_xy - sum_x * sum_y) / spread;
}

void GradProfile::ObserveDrift(const model::Report& report, std::span<const float> norms,
                               std::vector<model::Finding>* out) {
  // During the warm-up the profile moves in every healthy run.
  const std::optional<double> slope = state_.warmup.rising() ? std::nullopt : SlopeOf(report, norms);
  if (!slope) return;
  const bool known = state_.slopes.count() >= stats::kBaselineCountMin;
  // One wild report moves the smoothed slope no further than a usual one could.
  const double reach = known ? 4 * state_.slopes.sigma() : 0;
  const double entry = known && state_.has_slope
                           ? std::clamp(*slope, state_.slope_now - reach, state_.slope_now + reach) : *slope;
  state_.slope_now = state_.has_slope ? state_.slope_now + (entry - state_.slope_now) / kSlopeReports : entry;
  state_.has_slope = true;
  const double change = state_.slope_now - state_.slopes.median();
  const double sigma = state_.slopes.sigma() / std::sqrt(kSlopeReports);
  const double total = std::fabs(change) * static_cast<double>(norms.size() - 1);
  std::optional<Severity> severity;
  const bool clear = known && std::fabs(change) > options_.slope_min &&
                     std::fabs(change) > stats::SmallSampleLimit(kSlopeSigmas, state_.slopes.count()) * sigma;
  if (clear && total > std::log(options_.info_ratio)) severity = Severity::kInfo;
  if (clear && total > std::log(options_.warning_ratio)) severity = Severity::kWarning;
  state_.drift.Observe(
      severity, {.hold = options_.slope_reports, .quiet = options_.slope_reports},
      {name(), report.step, &state_.next_key, out},
      [&](model::Finding* finding) {
        finding->signal = Signal::kLayerGradNorm;
        finding->value = state_.slope_now;
        finding->expected = state_.slopes.median();
        finding->message = Sentence(
            "Gradients moved towards the %s: relative to the stream, their slope over depth is %.3g nats a layer, it "
            "was %.3g; %.3g times from end to end.",
            change > 0 ? "output" : "input", finding->value, finding->expected, std::exp(total));
      },
      [&] { return Sentence("The gradient profile over depth is what it was, or has become the usual one."); });
  state_.slopes.Observe(*slope);
}

void GradProfile::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  // The ratio is absolute and falls within 3 to 10 steps of a change that helps: that is how its end is seen.
  state_.slopes.Clear();
  state_.has_slope = false;
  state_.drift.Break(EndedBy(kind, step), out);
  if (kind == Break::kIntervention) return;
  state_.collapse.Break(EndedBy(kind, step), out);
  state_.high_run = 0;
  state_.ratios.Clear();
  state_.warmup.Clear();
}

}  // namespace gyrostat::detect
