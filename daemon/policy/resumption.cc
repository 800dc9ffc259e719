#include "policy/resumption.h"

#include <utility>

#include "policy/measure_plan.h"
#include "policy/words.h"
#include "remedy/registers.h"

namespace gyrostat::policy {
namespace {

using model::InterventionKind;
using model::InterventionState;

bool SameSchedule(const model::ModelSpec& a, const model::ModelSpec& b) {
  return a.schedule_kind == b.schedule_kind && a.schedule_peak == b.schedule_peak && a.warmup_steps == b.warmup_steps &&
         a.total_steps == b.total_steps;
}

std::string WhyNotAgain(const Desk& desk) {
  if (desk.terms.mode != model::Mode::kAct) return std::string("mode is ") + model::Token(desk.terms.mode);
  if (const auto hold = AgainstKind(InterventionKind::kWarmupExtension, *desk.s, *desk.m)) return hold->reason;
  return desk.m->of(InterventionKind::kWarmupExtension).open ? "another extension of the warm-up is open" : "";
}

void RaiseRayAlarm(const Desk& desk, double rate, double wanted, const std::string& why) {
  model::Finding finding;
  finding.signal = model::Signal::kLearningRate;
  finding.step_begin = desk.m->step;
  finding.value = rate;
  finding.expected = wanted;
  finding.message = "The job was resumed within an extended warm-up and has lost it: the learning rate is " +
                    Number(rate) + ", wanted " + Number(wanted) +
                    ". Nothing is ordered, since " + why + ": load the state that was saved with the checkpoint, or "
                    "propose warmup_extension.";
  desk.s->alarms.Begin(Alarms::Key::kRayLost, model::Severity::kCritical, std::move(finding), &desk.out->findings);
}

}  // namespace

void OpenHistory(const model::ModelSpec& spec, const ClipState& s, Measures* m) {
  // One that was lost before and is not there again stays lost.
  const remedy::Ray* latest = nullptr;
  for (const remedy::Ray& ray : m->envelope.rays())
    if (latest == nullptr || ray.until > latest->until) latest = &ray;
  if (latest != nullptr) m->lost = LostRay{*latest, m->step - static_cast<int64_t>(m->boundary)};
  if (!s.job || !SameSchedule(spec, s.job->model)) m->lost.reset();
  m->envelope = remedy::LrEnvelope();
  m->registers = RegisterMirror();
  m->gauges.Clear();
  m->reports = 0;
  m->changed_at = 0;
  m->logits_gap = 0;
  m->logits_at = 0;
}

bool HadAlpha(const Measures& m) { return m.registers.WasSet(remedy::kRegisterAlphas); }

void CheckAlpha(const Desk& desk, bool had_alpha) {
  ClipState& s = *desk.s;
  if (desk.m->registers.WasSet(remedy::kRegisterAlphas) || !had_alpha)
    return s.alarms.End(Alarms::Key::kAlphaLost, desk.m->step, &desk.out->findings);
  model::Finding finding;
  finding.step_begin = desk.m->step;
  finding.expected = s.job->model.deepnorm_alpha.value_or(1);
  finding.value = finding.expected;
  finding.message = "The job was resumed without the alpha that was changed in it: the residual scale is as declared "
                    "again, which the weights were not trained under. Load the state that was saved with the "
                    "checkpoint.";
  s.alarms.Begin(Alarms::Key::kAlphaLost, model::Severity::kCritical, std::move(finding), &desk.out->findings);
}

void CheckRay(const Desk& desk, const model::Report& report) {
  Measures& m = *desk.m;
  const std::optional<Measure>& open = m.of(InterventionKind::kWarmupExtension).open;
  if (!m.lost || (open && open->again) || !m.registers.doubt().empty()) return;
  const LostRay lost = *std::exchange(m.lost, std::nullopt);
  const int64_t shift = static_cast<int64_t>(report.boundary) - report.step + lost.step_minus_boundary;
  const int64_t began = static_cast<int64_t>(lost.ray.boundary) + lost.step_minus_boundary;
  const remedy::Schedule schedule = ScheduleOf(desk.s->job->model);
  // A checkpoint from before the ray never had it; then the findings speak for themselves.
  if (report.step < began || report.step < 0 || !remedy::CheckSchedule(schedule).empty()) return EndRayAlarm(desk);
  const remedy::Ray ray = lost.ray.Shifted(shift);
  const double base = remedy::BaseRate(schedule, static_cast<uint64_t>(report.step));
  if (report.boundary >= ray.until || ray.Cap(report.boundary) >= base) return EndRayAlarm(desk);
  if (m.registers.WasSet(remedy::kRegisterRayRate)) {
    m.envelope.Add({.ray = ray, .fall = {}}, m.envelope.version());
    return EndRayAlarm(desk);
  }
  m.lost = LostRay{ray, report.step - static_cast<int64_t>(report.boundary)};
  const std::string why = WhyNotAgain(desk);
  if (!why.empty()) return RaiseRayAlarm(desk, m.rate.value_or(base), ray.Cap(report.boundary), why);
  Measure& measure = OpenMeasure(desk, {.kind = InterventionKind::kWarmupExtension}, nullptr,
                                 InterventionState::kApproved,
                                 "The job was resumed within an extended warm-up and has lost it: the learning rate "
                                 "is " + Number(m.rate.value_or(base)) + ", wanted " +
                                     Number(ray.Cap(report.boundary)) + ". The same ray is ordered again.");
  measure.again = ray;
  measure.gauge = Gauge::kLoss;
}

void EndRayAlarm(const Desk& desk) {
  desk.m->lost.reset();
  desk.s->alarms.End(Alarms::Key::kRayLost, desk.m->step, &desk.out->findings);
}

}  // namespace gyrostat::policy
