#include "detect/depth_profile.h"

#include <algorithm>
#include <cmath>

#include "detect/scan.h"

namespace gyrostat::detect {
namespace {

using model::NormPlacement;
using model::Severity;
using model::Signal;

constexpr size_t kLayersMin = 8;

const char* LawName(stats::DepthLaw law) {
  switch (law) {
    case stats::DepthLaw::kConstant: return "constant";
    case stats::DepthLaw::kLinear: return "linear";
    case stats::DepthLaw::kExponential: return "exponential";
    case stats::DepthLaw::kLogarithmic: return "logarithmic";
  }
  return "";
}

}  // namespace

DepthProfile::DepthProfile(const DepthProfileOptions& options, const model::ModelSpec& spec)
    : options_(options), spec_(spec), architecture_(model::ArchitectureOf(spec)), state_(spec) {}

void DepthProfile::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  state_.warmup.Observe(report);
  const std::span<const float> hidden = report.Array(Signal::kHiddenMs);
  if (hidden.size() < kLayersMin || architecture_.placement == NormPlacement::kUnknown) return;
  if (state_.warmup.rising()) return;
  if (state_.sums.size() != hidden.size()) {
    state_.sums.assign(hidden.size(), 0);
    state_.counts.assign(hidden.size(), 0);
    state_.reports = 0;
  }
  for (size_t i = 0; i < hidden.size(); ++i) {
    if (!IsFinite(hidden[i]) || !(hidden[i] > 0)) continue;
    state_.sums[i] += std::log(static_cast<double>(hidden[i]));
    ++state_.counts[i];
  }
  if (++state_.reports < options_.window_reports) return;
  Judge(report.step, out);
  std::fill(state_.sums.begin(), state_.sums.end(), 0);
  std::fill(state_.counts.begin(), state_.counts.end(), 0);
  state_.reports = 0;
}

void DepthProfile::Judge(model::Step step, std::vector<model::Finding>* out) {
  // A window in which a layer was hardly measured says nothing.
  for (size_t i = 0; i < state_.sums.size(); ++i) {
    if (state_.counts[i] < options_.window_reports / 2) return;
    state_.sums[i] /= state_.counts[i];
  }
  const bool boundaries = spec_.layers > 0 && state_.sums.size() == spec_.layers + size_t{1};
  const std::optional<stats::DepthFit> fit = stats::FitDepth(state_.sums, boundaries ? 0 : 1);
  if (!fit) return;
  if (state_.windows == kRiseWindows) std::move(state_.growth.begin() + 1, state_.growth.end(), state_.growth.begin());
  else ++state_.windows;
  state_.growth[state_.windows - 1] = fit->c;
  const auto layers = static_cast<double>(state_.sums.size() - 1);
  const Verdict verdict = VerdictOf(*fit, layers);
  state_.profile.Observe(
      verdict.severity, {.hold = options_.hold_windows, .quiet = options_.hold_windows},
      {name(), step, &state_.next_key, out},
      [&](model::Finding* finding) {
        finding->signal = Signal::kHiddenMs;
        finding->layer = static_cast<uint32_t>(state_.sums.size() - (boundaries ? 2 : 1));
        finding->value = std::exp(state_.sums.back());
        finding->expected = std::exp(state_.sums.front());
        finding->message =
            Sentence("Hidden states run %s over depth, from mean square %.3g to %.3g, %.3g times per layer: %s",
                     LawName(fit->best), finding->expected, finding->value, std::exp(fit->c), verdict.why);
        finding->message += Sentence(" (placement %s).", model::Token(architecture_.placement));
      },
      [&] { return Sentence("Hidden states run over depth as this placement has it, %.3g times per layer.",
                            std::exp(fit->c)); });
}

DepthProfile::Verdict DepthProfile::VerdictOf(const stats::DepthFit& fit, double layers) const {
  const double total = std::fabs(fit.c) * layers;
  const bool exponential = fit.preference < -options_.decided_nats && fit.c > 0;
  if (architecture_.post_norm_family) {
    const char* why = "a norm closes each block, so only gains can do this";
    if (fit.best == stats::DepthLaw::kConstant || total < std::log(options_.flat_info_ratio)) return {};
    return {total >= 0.5 * std::log(options_.warning_ratio) ? Severity::kWarning : Severity::kInfo, why};
  }
  if (architecture_.stream_trained == model::ProfileLaw::kLinear) {
    if (!exponential || total < std::log(options_.info_ratio)) return {};
    return {total >= std::log(options_.warning_ratio) ? Severity::kWarning : Severity::kInfo,
            "exponential growth is not what this placement does"};
  }
  if (!exponential || state_.windows < kRiseWindows) return {};
  const double rise = fit.c - state_.growth.front();
  if (rise < options_.rise_info) return {};
  return {rise >= options_.rise_warning ? Severity::kWarning : Severity::kInfo,
          "exponential growth is usual for pre-norm, that it gets steeper so fast is not"};
}

void DepthProfile::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  state_.profile.Break(EndedBy(kind, step), out);
  state_.windows = state_.reports = 0;
  std::fill(state_.sums.begin(), state_.sums.end(), 0);
  std::fill(state_.counts.begin(), state_.counts.end(), 0);
  if (kind != Break::kIntervention) state_.warmup.Clear();
}

}  // namespace gyrostat::detect
