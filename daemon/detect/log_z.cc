#include "detect/log_z.h"

#include <algorithm>
#include <cmath>

#include "detect/text.h"

namespace gyrostat::detect {
namespace {

using model::Severity;
using model::Signal;

constexpr std::array<Signal, 2> kSignals = {Signal::kLogZ, Signal::kOutputLogitAbsmax};
// The largest logit of a healthy, confident model is far above its log Z and grows for as long as it learns: only its
// level is judged.
constexpr std::array<bool, 2> kDriftIsNews = {true, false};
// Where numbers of that size are half a nat apart, or a nat in 32 bits' reach of nothing: 2^7 steps a binade in bf16,
// 2^10 in fp16, 2^23 in fp32, where only the size itself is absurd.
constexpr double kLevelBf16 = 128, kLevelFp16 = 1024, kLevelFp32 = 10000;
constexpr double kEndShare = 0.5;

double LevelFor(const std::string& compute_dtype) {
  if (compute_dtype == "fp16" || compute_dtype == "float16") return kLevelFp16;
  if (compute_dtype == "fp32" || compute_dtype == "float32") return kLevelFp32;
  return kLevelBf16;
}

}  // namespace

LogZ::LogZ(const LogZOptions& options, const model::ModelSpec& spec)
    : options_(options),
      level_(options.level_nats > 0 ? options.level_nats : LevelFor(spec.compute_dtype)),
      state_(options) {}

void LogZ::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  const bool jumped = state_.conditions.Observe(report);
  for (size_t which = 0; which < kSignals.size(); ++which) {
    Series& series = state_.series[which];
    if (jumped && !series.condition.open()) series.climb.Clear();
    ObserveSeries(which, report, out);
  }
}

void LogZ::ObserveSeries(size_t which, const model::Report& report, std::vector<model::Finding>* out) {
  if (!report.Has(kSignals[which])) return;
  const double value = report.Scalar(kSignals[which]);
  if (!std::isfinite(value)) return;
  Series& series = state_.series[which];
  series.climb.Observe(std::fabs(value));
  const bool drifts = series.climb.excess() >= options_.drift_nats && series.climb.Deviations() >= options_.deviations;
  const bool high = series.climb.level() >= level_ && drifts;
  const bool counts = high || (drifts && kDriftIsNews[which]);
  if (counts && series.held == 0) series.since = report.step;
  series.held = counts ? Saturating(series.held) : 0;
  series.high_held = high ? Saturating(series.high_held) : 0;
  if (counts) series.last_over = report.step;
  Tell(which, report.step, value, out);
}

void LogZ::Tell(size_t which, model::Step step, double value, std::vector<model::Finding>* out) {
  Series& series = state_.series[which];
  const std::string signal(model::SignalName(kSignals[which]));
  if (series.condition.open() && series.climb.known() && series.climb.excess() < kEndShare * options_.drift_nats) {
    series.condition.End(series.last_over, true, Sentence("%s is back near %.4g.", signal.c_str(), value), out);
    return;
  }
  if (series.held < options_.hold_reports) return;
  const auto severity = series.high_held >= options_.hold_reports ? Severity::kWarning : Severity::kInfo;
  if (series.condition.open() && severity <= series.condition.finding().severity) return;
  if (!series.condition.open())
    series.condition.Open(name(), kSignals[which], series.since, step, &state_.next_key);
  model::Finding& finding = series.condition.finding();
  finding.severity = severity;
  finding.value = value;
  finding.expected = std::copysign(series.climb.lowest(), value);
  finding.message = Sentence("%s has drifted to %.4g; its median size was %.4g and is %.4g, since step %lld.",
                             signal.c_str(), value, series.climb.lowest(), series.climb.level(),
                             Printable(finding.step_begin));
  if (severity == Severity::kWarning) {
    finding.recommend = model::InterventionKind::kLrScale;
    finding.message += Sentence(" From %.4g on rounding reaches the loss. A z-loss or more weight decay on the output "
                                "layer is the cure.", level_);
  }
  series.condition.Say(out);
}

void LogZ::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  for (Series& series : state_.series) {
    if (series.condition.open() && kind == Break::kIntervention) continue;
    if (series.condition.open()) series.condition.End(series.last_over, std::nullopt, EndedBy(kind, step), out);
    series.climb.Clear();
    series.held = series.high_held = 0;
  }
  if (kind != Break::kIntervention) state_.conditions.Clear();
}

}  // namespace gyrostat::detect
