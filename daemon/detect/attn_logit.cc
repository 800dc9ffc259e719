#include "detect/attn_logit.h"

#include <algorithm>
#include <cmath>

#include "detect/scan.h"
#include "detect/text.h"

namespace gyrostat::detect {
namespace {

using model::Severity;

// A head whose count of offences is at least half of this was over tau in most of its recent reports.
constexpr int kOffencesMax = 64;
constexpr int kPersistent = kOffencesMax / 2;
constexpr int kRunMax = UINT16_MAX;
// A clip that was applied so few reports ago still explains why heads stand near tau.
constexpr uint32_t kClipRemembered = 64;
// But with heads over tau in so many reports since then, no further clip has come: nobody clips any more.
constexpr uint32_t kClipAwaited = 16;
// Growth is said after so many reports in a row that agree, and is over after so many that do not.
constexpr uint32_t kGrowingReports = 8;
constexpr uint32_t kNotGrowingReports = 32;
// Below this share of tau a forecast says more about the first steps than about danger.
constexpr double kForecastFromShare = 0.25;
// So many reports at critical_level: one bad batch is not a run.
constexpr uint32_t kCriticalReports = 3;

bool MayClipFrom(model::LogitKind kind) {
  return kind == model::LogitKind::kExact || kind == model::LogitKind::kLseUpper;
}

}  // namespace

AttnLogit::AttnLogit(const AttnLogitOptions& options, const model::ModelSpec& spec)
    : options_(options),
      layers_(spec.layers),
      heads_(spec.heads) {}

void AttnLogit::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  if (report.ledger_version > state_.ledger_version)
    state_.since_clip = state_.over_since_clip = 0;
  else
    state_.since_clip = Saturating(state_.since_clip);
  state_.ledger_version = report.ledger_version;

  const std::span<const float> values = report.Array(model::Signal::kAttnLogitMax);
  if (values.empty()) return;
  const Look look = Scan(values);
  if (model::IsAbsent(look.max)) return;
  const std::optional<stats::GrowthFit> fit = Fit(report.step, look.max);
  ObserveExcursion(report, look, fit, out);
  ObserveGrowth(report, look, fit, out);
}

AttnLogit::Look AttnLogit::Scan(std::span<const float> values) {
  Look look;
  look.max = MaxFinite(values);
  if (state_.high_run.size() != values.size()) {
    state_.high_run.assign(values.size(), 0);
    state_.offences.assign(values.size(), 0);
    state_.counting = false;
  }
  if (look.max > options_.tau || state_.counting) CountHeads(values, &look);
  look.worst = IndexOf(values, look.max);
  return look;
}

// Nearly all heads of nearly all reports are below tau and always were: those cost one comparison. A head that was not
// measured keeps its counters.
void AttnLogit::CountHeads(std::span<const float> values, Look* look) {
  const auto tau = static_cast<float>(options_.tau), high = static_cast<float>(options_.tau * options_.high_ratio);
  state_.counting = false;
  for (size_t i = 0; i < values.size(); ++i) {
    const float v = FiniteOrAbsent(values[i]);
    uint16_t& run = state_.high_run[i];
    uint8_t& offences = state_.offences[i];
    if (v <= tau && offences == 0) continue;  // A head in a high run has offences.
    if (v > tau) {
      ++look->over;
      offences = static_cast<uint8_t>(std::min(offences + 2, kOffencesMax));
      run = v > high ? static_cast<uint16_t>(std::min(run + 1, kRunMax)) : uint16_t{0};
    } else if (v > model::kAbsent) {
      --offences;
      run = 0;
    }
    if (v > high) ++look->high;
    if (run > options_.high_reports) ++look->high_lasting;
    if (offences >= kPersistent) ++look->persistent;
    if (offences > 0) state_.counting = true;
  }
}

std::optional<stats::GrowthFit> AttnLogit::Fit(model::Step step, float max) {
  if (!(max > 0)) return std::nullopt;
  if (state_.fit_steps.size() >= options_.fit_reports) {
    state_.fit_steps.erase(state_.fit_steps.begin());
    state_.fit_logs.erase(state_.fit_logs.begin());
  } else if (state_.fit_steps.empty()) {
    state_.fit_steps.reserve(options_.fit_reports);
    state_.fit_logs.reserve(options_.fit_reports);
  }
  state_.fit_steps.push_back(static_cast<double>(step));
  state_.fit_logs.push_back(std::log(max));
  if (state_.fit_steps.size() < 32 || max < kForecastFromShare * options_.tau) return std::nullopt;
  return stats::FitGrowth(state_.fit_steps, state_.fit_logs);
}

bool AttnLogit::ClipSeen() const {
  return state_.since_clip < kClipRemembered && state_.over_since_clip < kClipAwaited;
}

Severity AttnLogit::SeverityOf(const model::Report& report, const Look& look,
                               const std::optional<stats::GrowthFit>& fit) const {
  const Excursion& excursion = *state_.excursion;
  // A norm product is 2 to 3 times too large: it may warn, not more.
  const bool may_be_critical = report.attn_logit_kind != model::LogitKind::kNormProduct;
  if (may_be_critical && excursion.reports_critical >= kCriticalReports) return Severity::kCritical;
  if (look.high_lasting > 0) {
    const std::optional<double> steps =
        fit && fit->Rising() ? fit->StepsTo(options_.critical_level) : std::optional<double>();
    const bool runs_away = steps && *steps <= options_.runaway_steps;
    return may_be_critical && runs_away ? Severity::kCritical : Severity::kWarning;
  }
  return excursion.reports_over >= options_.lasting_reports && !ClipSeen() ? Severity::kWarning : Severity::kInfo;
}

void AttnLogit::ObserveExcursion(const model::Report& report, const Look& look,
                                 const std::optional<stats::GrowthFit>& fit, std::vector<model::Finding>* out) {
  const bool begins = !state_.excursion && look.over > 0;
  if (begins) {
    Excursion& fresh = state_.excursion.emplace();
    fresh.finding.key = state_.next_key++;
    fresh.finding.detector = name();
    fresh.finding.signal = model::Signal::kAttnLogitMax;
    fresh.finding.step_begin = fresh.finding.step_detected = report.step;
    fresh.finding.expected = options_.tau;
    if (MayClipFrom(report.attn_logit_kind))
      fresh.finding.recommend = model::InterventionKind::kQkClip;
  }
  if (!state_.excursion) return;
  Excursion& excursion = *state_.excursion;
  excursion.peak = std::max(excursion.peak, look.max);
  excursion.quiet = look.over > 0 ? 0 : excursion.quiet + 1;
  excursion.quiet_high = look.high > 0 ? 0 : excursion.quiet_high + 1;
  if (look.over > 0) {
    ++excursion.reports_over;
    excursion.last_over = report.step;
    state_.over_since_clip = Saturating(state_.over_since_clip);
  }
  if (look.high > 0) excursion.last_high = report.step;
  if (look.max >= options_.critical_level) ++excursion.reports_critical;
  if (EndIfQuiet(out)) return;
  const Severity severity = SeverityOf(report, look, fit);
  if (!begins && severity <= excursion.finding.severity) return;
  excursion.finding.severity = severity;
  excursion.finding.value = look.max;
  Name(look, report.Array(model::Signal::kAttnLogitMax).size(), &excursion.finding);
  excursion.finding.message = Describe(look, fit);
  out->push_back(excursion.finding);
}

// A critical excursion is over once no head has been high for long, although clips may still hold heads near tau:
// that is then an excursion of its own.
bool AttnLogit::EndIfQuiet(std::vector<model::Finding>* out) {
  Excursion& excursion = *state_.excursion;
  const bool critical = excursion.finding.severity == Severity::kCritical;
  if ((critical ? excursion.quiet_high : excursion.quiet) < options_.quiet_reports) return false;
  model::Finding& finding = excursion.finding;
  finding.step_end = critical ? excursion.last_high : excursion.last_over;
  finding.healed = true;
  finding.value = excursion.peak;
  finding.message =
      Sentence("No head has been over %.4g for %u reports; in %u one was over tau = %g, at most %.4g.",
               critical ? options_.tau * options_.high_ratio : options_.tau, options_.quiet_reports,
               excursion.reports_over, options_.tau, excursion.peak);
  out->push_back(finding);
  state_.excursion.reset();
  return true;
}

void AttnLogit::Name(const Look& look, size_t size, model::Finding* finding) const {
  const size_t heads = heads_ > 0 ? heads_ : (layers_ > 0 ? size / layers_ : 0);
  if (heads == 0) return;
  finding->layer = static_cast<uint32_t>(look.worst / heads);
  finding->head = static_cast<uint32_t>(look.worst % heads);
}

std::string AttnLogit::Describe(const Look& look, const std::optional<stats::GrowthFit>& fit) const {
  const model::Finding& finding = state_.excursion->finding;
  std::string text = Sentence("Attention logit %.4g", look.max);
  if (finding.layer) text += Sentence(" in layer %u, head %u", *finding.layer, *finding.head);
  text += Sentence(" is over tau = %g", options_.tau);
  text += "; " + Counted(look.over, "head") + Sentence(" over it, %u above %g tau", look.high, options_.high_ratio);
  text += ", " + Counted(look.persistent, "head") + " over it most of the time";
  if (ClipSeen()) text += ", while clips are being applied";
  text += ".";
  if (fit && fit->Rising()) {
    for (const double level : {options_.critical_level, options_.lost_level}) {
      const std::optional<double> steps = fit->StepsTo(level);
      if (look.max < level && steps)
        text += Sentence(" At this rate the maximum reaches %g in %.0f steps.", level, *steps);
    }
  }
  return text;
}

void AttnLogit::ObserveGrowth(const model::Report& report, const Look& look,
                              const std::optional<stats::GrowthFit>& fit, std::vector<model::Finding>* out) {
  const bool over = look.over > 0 || state_.excursion.has_value();
  const std::optional<double> steps =
      fit && !over && fit->Rising() ? fit->StepsTo(options_.tau) : std::optional<double>();
  const bool growing = steps && *steps <= options_.forecast_steps;
  state_.growing = growing ? state_.growing + 1 : 0;
  state_.not_growing = growing ? 0 : Saturating(state_.not_growing);
  if (!state_.growth && state_.growing >= kGrowingReports) {
    model::Finding& finding = state_.growth.emplace();
    finding.key = state_.next_key++;
    finding.detector = name();
    finding.severity = Severity::kInfo;
    finding.signal = model::Signal::kAttnLogitMax;
    Name(look, report.Array(model::Signal::kAttnLogitMax).size(), &finding);
    finding.step_begin = finding.step_detected = report.step;
    finding.value = look.max;
    finding.expected = options_.tau;
    const char* how = fit->exponential ? "exponentially" : "steadily";
    finding.message = Sentence("The largest attention logit, %.4g, grows %s and reaches tau = %g in about %.0f steps.",
                               look.max, how, options_.tau, *steps);
    out->push_back(finding);
  } else if (state_.growth && (over || state_.not_growing >= kNotGrowingReports)) {
    state_.growth->step_end = report.step;
    state_.growth->healed = !over;
    state_.growth->message = over ? Sentence("The forecast came true: a head is over tau = %g.", options_.tau)
                                  : Sentence("The largest attention logit, %.4g, no longer grows towards tau = %g.",
                                             look.max, options_.tau);
    out->push_back(*state_.growth);
    state_.growth.reset();
    state_.growing = 0;
  }
}

void AttnLogit::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  if (kind == Break::kIntervention) return;
  const auto end = [kind, step, out](model::Finding& finding, model::Step last) {
    finding.step_end = last;
    finding.message = EndedBy(kind, step);
    out->push_back(finding);
  };
  if (state_.excursion) end(state_.excursion->finding, state_.excursion->last_over);
  if (state_.growth) end(*state_.growth, state_.growth->step_detected);
  const uint64_t next_key = state_.next_key;
  state_ = {};
  state_.next_key = next_key;
}

}  // namespace gyrostat::detect
