#include "detect/warmup.h"

#include <algorithm>
#include <cmath>

#include "detect/scan.h"

namespace gyrostat::detect {
namespace {

using model::NormPlacement;
using model::Severity;
using model::Signal;

constexpr uint32_t kLevelReports = 32;
constexpr uint32_t kQuiet = 32;
// The loss at a step up to this is that of a model that knows nothing.
constexpr model::Step kFirstSteps = 2;

}  // namespace

Warmup::State::State(const model::ModelSpec& spec)
    : phase(spec), losses({.window = kLevelReports, .winsor_mads = 0, .sigma_min = 0}) {
  if (spec.vocab_size > 1) knows_nothing = std::log(spec.vocab_size);
}

Warmup::Warmup(const WarmupOptions& options, const model::ModelSpec& spec)
    : options_(options), spec_(spec), architecture_(model::ArchitectureOf(spec)), state_(spec) {}

void Warmup::LearnRatio(const model::Report& report) {
  const std::span<const float> norms = report.Array(Signal::kLayerGradNorm);
  if (norms.size() < 2 || !IsFinite(norms.front()) || !IsFinite(norms.back())) return;
  if (!(norms.front() > 0) || !(norms.back() > 0)) return;
  state_.ratios.Observe(std::log(static_cast<double>(norms.back()) / norms.front()));
}

void Warmup::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  state_.phase.Observe(report);
  LearnRatio(report);
  const double loss = report.Scalar(Signal::kLoss);
  if (!report.Has(Signal::kLoss) || !std::isfinite(loss)) return;
  state_.started = state_.started || report.step > kFirstSteps;
  if (spec_.vocab_size <= 1 && !state_.started && loss > 0) {
    state_.first.Observe(loss);
    state_.knows_nothing = state_.first.median();
  }
  state_.losses.Observe(loss);
  if (state_.losses.count() < kLevelReports) return;
  const double level = state_.losses.median();
  const Sustained::Context context{name(), report.step, &state_.next_key, out};
  if (state_.phase.rising()) ObserveRamp(level, context);
  if (state_.levels_known == kApart) ObservePlateau(level, state_.levels[state_.levels_next], context);
  state_.levels[state_.levels_next] = level;
  state_.levels_next = (state_.levels_next + 1) % kApart;
  state_.levels_known = std::min<uint32_t>(state_.levels_known + 1, kApart);
}

std::optional<model::InterventionKind> Warmup::Cure() const {
  if (state_.phase.rising())
    return architecture_.post_norm_family ? model::InterventionKind::kWarmupExtension
                                          : model::InterventionKind::kLrScale;
  if (architecture_.placement == NormPlacement::kPost || architecture_.placement == NormPlacement::kDeepnorm)
    return model::InterventionKind::kDeepnormAlpha;
  return std::nullopt;
}

void Warmup::ObservePlateau(double level, double earlier, const Sustained::Context& context) {
  const bool high = state_.knows_nothing > 0 && level > options_.plateau_share * state_.knows_nothing;
  const bool still = std::fabs(level - earlier) < options_.still_share * std::fabs(level);
  const bool vanished = !state_.ratios.known() || state_.ratios.median() > std::log(options_.ratio);
  // An open plateau does not end because the loss creeps: it ends when it falls.
  const bool falls = level < earlier - options_.still_share * std::fabs(level);
  const bool stands = high && vanished && state_.phase.phase() == WarmupPhase::Phase::kOver &&
                      (still || (state_.plateau.open() && !falls));
  std::optional<Severity> severity;
  if (stands) severity = state_.plateau.run() >= options_.critical_reports ? Severity::kCritical : Severity::kWarning;
  state_.plateau.Observe(
      severity, {.hold = options_.plateau_reports, .quiet = kQuiet}, context,
      [&](model::Finding* finding) {
        finding->signal = Signal::kLoss;
        finding->value = level;
        finding->expected = options_.plateau_share * state_.knows_nothing;
        finding->recommend = Cure();
        finding->message =
            Sentence("The loss stands still at %.4g, %.2g of what a model that knows nothing has (%.4g): it has learnt "
                     "how frequent tokens are, and no more", level, level / state_.knows_nothing, state_.knows_nothing);
        if (state_.ratios.known())
          finding->message += Sentence("; the last block's gradient is %.3g times the first's",
                                       std::exp(state_.ratios.median()));
        finding->message += ".";
      },
      [&] { return Sentence("The loss no longer stands still: %.4g.", level); });
}

void Warmup::ObserveRamp(double level, const Sustained::Context& context) {
  if (!state_.has_lowest || level < state_.lowest) state_.lowest = level;
  state_.has_lowest = true;
  const double climb = level - state_.lowest;
  const bool climbs = climb > options_.ramp_nats && climb > options_.ramp_share * std::fabs(state_.lowest);
  state_.ramp.Observe(
      climbs ? std::optional(Severity::kWarning) : std::nullopt, {.hold = options_.ramp_reports, .quiet = kQuiet},
      context,
      [&](model::Finding* finding) {
        finding->signal = Signal::kLoss;
        finding->value = level;
        finding->expected = state_.lowest;
        finding->recommend = Cure();
        finding->message = Sentence("The loss rises, from %.4g to %.4g, while the learning rate still does: the rate "
                                    "has passed what this model bears.", state_.lowest, level);
      },
      [&] { return Sentence("The loss is down at %.4g again.", level); });
}

void Warmup::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  state_.plateau.Break(EndedBy(kind, step), out);
  state_.ramp.Break(EndedBy(kind, step), out);
  state_.levels_known = state_.levels_next = 0;
  state_.has_lowest = false;
  if (kind == Break::kIntervention) return;
  // What a model that knows nothing loses is a fact about the data, and stays.
  state_.losses.Clear();
  state_.ratios.Clear();
  state_.started = state_.started || state_.first.known();
  state_.phase.Clear();
}

}  // namespace gyrostat::detect
