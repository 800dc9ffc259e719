#include "detect/spike_score_level.h"

#include <algorithm>
#include <cmath>

#include "detect/text.h"

namespace gyrostat::detect {
namespace {

using model::Signal;

constexpr std::array<Signal, 2> kValues = {Signal::kLoss, Signal::kGradNorm};
constexpr std::array<Signal, 2> kScores = {Signal::kSpikeScoreLoss, Signal::kSpikeScoreGradNorm};
// The level is over once it has fallen to this share of the lower threshold: percentages move slowly and must not flap.
constexpr double kEndShare = 0.5;
// Client and daemon run the same code on the same doubles: anything above rounding of the percentage is a difference.
constexpr double kTolerancePercent = 1e-9;

}  // namespace

SpikeScoreLevel::SpikeScoreLevel(const SpikeScoreLevelOptions& options) : options_(options), state_(options.score) {}

void SpikeScoreLevel::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  state_.comparing = state_.comparing && report.sequence == state_.sequence + 1;
  state_.sequence = report.sequence;
  for (size_t i = 0; i < kValues.size(); ++i) ObserveSeries(i, report, out);
}

void SpikeScoreLevel::ObserveSeries(size_t which, const model::Report& report, std::vector<model::Finding>* out) {
  const double value = report.Scalar(kValues[which]);
  const bool not_measured = !report.Has(kValues[which]) || (kValues[which] == Signal::kGradNorm && value < 0);
  if (!not_measured) {
    Series& series = state_.series[which];
    series.run.Observe(value);
    if (state_.comparing) series.attempt.Observe(value);
    Level(which, report.step, out);
  }
  if (state_.comparing) Compare(which, report, out);
}

void SpikeScoreLevel::Level(size_t which, model::Step step, std::vector<model::Finding>* out) {
  Series& series = state_.series[which];
  const double percent = series.run.percent();
  const std::string signal(model::SignalName(kValues[which]));
  if (series.open && percent <= kEndShare * options_.info_percent) {
    series.open->step_end = step;
    series.open->healed = true;
    series.open->message = Sentence("The spike score of %s has fallen to %.3g %%.", signal.c_str(), percent);
    out->push_back(*series.open);
    series.open.reset();
    return;
  }
  if (series.run.evaluated() < options_.evaluated_min || series.run.spikes() < options_.spikes_min) return;
  if (percent < options_.info_percent) return;
  const auto severity = percent >= options_.warning_percent ? model::Severity::kWarning : model::Severity::kInfo;
  if (series.open && severity <= series.open->severity) return;
  if (!series.open) {
    model::Finding& finding = series.open.emplace();
    finding.key = state_.next_key++;
    finding.detector = name();
    finding.signal = kScores[which];
    finding.step_begin = finding.step_detected = step;
    finding.expected = options_.info_percent;
  }
  series.open->severity = severity;
  series.open->value = percent;
  series.open->message = Sentence(
      "The spike score of %s is %.3g %% (%llu spikes in %llu steps); OLMo 2 reports 0.03 for a stable run and 0.40 for "
      "an unstable one.", signal.c_str(), percent, static_cast<unsigned long long>(series.run.spikes()),
      static_cast<unsigned long long>(series.run.evaluated()));
  out->push_back(*series.open);
}

void SpikeScoreLevel::Compare(size_t which, const model::Report& report, std::vector<model::Finding>* out) {
  Series& series = state_.series[which];
  if (series.disagreement || !report.Has(kScores[which])) return;
  const double theirs = report.Scalar(kScores[which]), ours = series.attempt.percent();
  if (std::fabs(theirs - ours) <= kTolerancePercent) return;  // False for NaN.
  model::Finding& finding = series.disagreement.emplace();
  finding.key = state_.next_key++;
  finding.detector = name();
  finding.severity = model::Severity::kWarning;
  finding.signal = kScores[which];
  finding.step_begin = finding.step_detected = report.step;
  finding.value = theirs;
  finding.expected = ours;
  finding.message = Sentence(
      "The client's %s is %.6g %%, but its values give %.6g %% here: its version or its reports are not as they seem.",
      std::string(model::SignalName(kScores[which])).c_str(), theirs, ours);
  out->push_back(finding);
}

void SpikeScoreLevel::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  if (kind != Break::kNewAttempt) return;
  state_.sequence = 0;
  state_.comparing = true;
  for (Series& series : state_.series) {
    series.attempt = stats::SpikeScore(options_.score);
    if (!series.disagreement) continue;
    series.disagreement->step_end = step;
    series.disagreement->message = EndedBy(kind, step);
    out->push_back(*series.disagreement);
    series.disagreement.reset();
  }
}

}  // namespace gyrostat::detect
