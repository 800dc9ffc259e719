#include "policy/measure_judging.h"

#include <utility>

#include "policy/measure_flow.h"
#include "policy/words.h"

namespace gyrostat::policy {
namespace {

using model::InterventionKind;
using model::InterventionState;
using model::Outcome;

constexpr RunTime kPatience = 200;      // Until a job that was asked to go back or to end should have done so.
constexpr RunTime kAfterOutcome = 200;  // The same is not tried again at once.
constexpr size_t kSkipWindow = 20;

void Disable(const Desk& desk, InterventionKind kind) {
  KindBook& book = desk.m->of(kind);
  book.disabled = std::string(model::Token(kind)) + " is disabled for this run after " +
                  Count(book.failures, "failure") + ", and stays so until somebody sets the mode again";
  model::Finding finding;
  finding.step_begin = desk.m->step;
  finding.value = book.failures;
  finding.expected = desk.terms.options.failures_to_disable;
  finding.message = book.disabled + ".";
  desk.s->alarms.Begin(Alarms::DisabledKey(kind), model::Severity::kWarning, std::move(finding), &desk.out->findings);
}

void Conclude(const Desk& desk, Verdict verdict, Measure* measure) {
  const InterventionKind kind = measure->view.kind;
  measure->view.outcome = verdict.outcome;
  measure->verdict = std::move(verdict.reason);
  const bool failed = verdict.outcome == Outcome::kIneffective || verdict.outcome == Outcome::kHarmful;
  const std::string why = "intent " + measure->view.id + " was judged " + model::Token(verdict.outcome);
  EndMeasure(desk, measure, InterventionState::kJudged, "", kAfterOutcome, why);
  KindBook& book = desk.m->of(kind);
  if (failed && ++book.failures >= desk.terms.options.failures_to_disable) Disable(desk, kind);
}

void JudgeRequest(const Desk& desk, Measure* measure) {
  if (desk.s->now < measure->applied_at + kPatience) return;
  const char* what = measure->view.kind == InterventionKind::kHalt ? "ended" : "went back";
  Conclude(desk, {Outcome::kIneffective, "Ineffective: the job took the request, and has not " + std::string(what) +
                                             " within " + Count(kPatience, "step") + "."},
           measure);
}

void JudgeSkip(const Desk& desk, const model::Report& report, const Levels& levels, Measure* measure) {
  if (!measure->effect.open()) {
    if (report.boundary < measure->skip_boundary) return;
    measure->effect.Open({.gauge = Gauge::kLoss,
                          .before = desk.m->gauges.Newest(Gauge::kLoss, kSkipWindow),
                          .window = kSkipWindow},
                         report.boundary);
    return;
  }
  // One step: what called for it is past. Left is whether the loss stands where it stood.
  if (auto verdict = measure->effect.Observe(report.boundary, levels, false))
    Conclude(desk, *std::move(verdict), measure);
}

}  // namespace

void BeginJudging(const Desk& desk, const model::Order& order, model::Boundary boundary, Measure* measure) {
  const InterventionKind kind = measure->view.kind;
  measure->applied_at = desk.s->now;
  if (!IsRequest(kind)) desk.m->changed_at = desk.s->now;
  if (kind == InterventionKind::kCheckpoint)
    return Conclude(desk, {Outcome::kEffective, "Effective: the job took the request."}, measure);
  if (IsRequest(kind) || kind == InterventionKind::kSkipStep) return;
  const size_t window = EffectWindow(desk.s->job->model.total_steps.value_or(0));
  measure->effect.Open({.gauge = measure->gauge,
                        .before = desk.m->gauges.Newest(measure->gauge, window),
                        .window = window,
                        .skip = order.ramp},
                       boundary);
}

void JudgeMeasures(const Desk& desk, const model::Report& report, const Levels& levels) {
  for (const InterventionKind kind : MeasureKinds()) {
    std::optional<Measure>& open = desk.m->of(kind).open;
    if (!open || open->view.state != InterventionState::kApplied) continue;
    if (IsRequest(kind)) {
      JudgeRequest(desk, &*open);
    } else if (kind == InterventionKind::kSkipStep) {
      JudgeSkip(desk, report, levels, &*open);
    } else if (auto verdict = open->effect.Observe(report.boundary, levels, desk.m->StillThere(*open))) {
      Conclude(desk, *std::move(verdict), &*open);
    }
  }
}

void ForgiveMeasures(const Desk& desk) {
  for (const InterventionKind kind : MeasureKinds()) {
    KindBook& book = desk.m->of(kind);
    book.failures = 0;
    book.disabled.clear();
    book.paused_until = 0;
    desk.s->alarms.End(Alarms::DisabledKey(kind), desk.m->step, &desk.out->findings);
  }
}

void EndMeasureHistory(const Desk& desk, HistoryEnd end, const std::string& sentence) {
  desk.m->collect_before.reset();
  for (KindBook& book : desk.m->kinds) {
    std::optional<Measure>& open = book.open;
    if (!open) continue;
    const InterventionKind kind = open->view.kind;
    const bool taken = open->view.state == InterventionState::kApplied;
    const bool done = taken && (kind == InterventionKind::kRollback ||
                                (kind == InterventionKind::kHalt && end == HistoryEnd::kAttempt));
    if (done) {
      const char* what = kind == InterventionKind::kHalt ? "Effective: the job ended."
                                                         : "Effective: the weights got another history.";
      Conclude(desk, {Outcome::kEffective, what}, &*open);
    } else {
      EndMeasure(desk, &*open, InterventionState::kLost, sentence);
    }
  }
}

}  // namespace gyrostat::policy
