#include "policy/measure_orders.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "policy/lifecycle.h"
#include "policy/measure_judging.h"
#include "policy/measure_plan.h"
#include "policy/resumption.h"
#include "policy/words.h"
#include "remedy/registers.h"

namespace gyrostat::policy {
namespace {

using model::AckOutcome;
using model::InterventionKind;
using model::InterventionState;

constexpr uint32_t kLateMax = 3;         // Orders that expired before the measure is given up.
constexpr model::Boundary kOverdue = 16; // After the expiry: no word of it will come.
// A client that refused is asked again after 200 boundaries, then 400, ... 6400: each time a person may have to.
constexpr RunTime kRefusalPauseMin = 200;
constexpr uint32_t kRefusalDoublings = 5;

// What is known of an order's end. A hello tells no more than the outcome.
enum class Told : uint8_t { kByAck, kByHello };

std::string ReasonOf(const model::Ack& ack) { return ack.reason.empty() ? "it gave no reason" : ack.reason; }

// The order is answered; it is remembered for a word that comes twice.
model::Order Close(const Desk& desk, bool counted, Measure* measure) {
  model::Order order = *std::move(measure->out);
  measure->out.reset();
  desk.m->ended.push_back({order, measure->number, counted});
  if (desk.m->ended.size() > Measures::kEndedMax) desk.m->ended.pop_front();
  return order;
}

// What an applied order did to the copies of the client's state.
void Follow(const Desk& desk, const model::Order& order, model::Boundary boundary) {
  Measures& m = *desk.m;
  m.registers.Take(order, boundary);
  if (order.kind == InterventionKind::kWarmupExtension) {
    if (const auto extension = ExtensionOf(order)) m.envelope.Add(*extension, m.envelope.version());
    EndRayAlarm(desk);
  } else if (order.kind == InterventionKind::kLrScale && order.sets.size() == 2 && order.sets[1].value >= 0 &&
             order.sets[1].value < static_cast<float>(remedy::kVersionsSaid)) {
    m.envelope.Scale(static_cast<double>(order.sets[0].value), static_cast<model::Boundary>(order.sets[1].value),
                     m.envelope.version());
  }
}

void CountApplied(const Desk& desk, const model::Ack& ack, Told told, Measure* measure) {
  const model::Order order = Close(desk, true, measure);
  const bool detailed = told == Told::kByAck;
  if (detailed && ack.boundary >= order.basis) desk.s->book.TakeDelay(ack.boundary - order.basis);
  const model::Boundary boundary = detailed ? ack.boundary : desk.m->boundary;
  Follow(desk, order, boundary);
  model::Intervention& view = measure->view;
  ++view.orders_applied;
  measure->late = 0;
  desk.m->of(view.kind).refusals = 0;
  if (order.kind != view.kind) {  // What goes before alpha.
    measure->companion_done = true;
    desk.m->changed_at = desk.s->now;
    return Tell(measure->view, desk.out);
  }
  view.state = InterventionState::kApplied;
  view.step_applied = detailed ? ack.step : desk.m->step;
  if (detailed) view.median_delay_boundaries = static_cast<double>(ack.boundary - std::min(order.basis, ack.boundary));
  Tell(measure->view, desk.out);
  BeginJudging(desk, order, boundary, measure);
}

void CountExpired(const Desk& desk, Measure* measure) {
  Close(desk, false, measure);
  if (++measure->late >= kLateMax)
    return EndMeasure(desk, measure, InterventionState::kExpired,
                      "None of its last " + Count(measure->late, "order") + " was applied in time.");
  measure->view.state = InterventionState::kApproved;  // Computed anew from the next report.
  Tell(measure->view, desk.out);
}

void CountVoid(const Desk& desk, const model::Ack& ack, Measure* measure) {
  const model::Order order = Close(desk, true, measure);
  if (order.kind == InterventionKind::kSkipStep)
    return EndMeasure(desk, measure, InterventionState::kVoid, "The step was past: " + ReasonOf(ack) + ".");
  desk.m->registers.Doubt("the job found order " + order.id.ToHex() +
                          " void: its registers stand elsewhere than they were told, and the next hello tells where");
  measure->view.state = InterventionState::kApproved;
  Tell(measure->view, desk.out);
}

void CountRefused(const Desk& desk, const model::Ack& ack, Measure* measure) {
  Close(desk, true, measure);
  KindBook& book = desk.m->of(measure->view.kind);
  const RunTime pause = kRefusalPauseMin << std::min(book.refusals, kRefusalDoublings);
  ++book.refusals;
  EndMeasure(desk, measure, InterventionState::kRefused, "The client refused: " + ReasonOf(ack) + ".", pause,
             "the client refused the last order: " + ReasonOf(ack));
}

void CountFailed(const Desk& desk, const model::Ack& ack, Measure* measure) {
  ClipState& s = *desk.s;
  Close(desk, true, measure);
  s.failed = "an order failed while it was applied, and ranks or weights may be unequal: " + ReasonOf(ack);
  model::Finding finding;
  finding.step_begin = desk.m->step;
  finding.message = "An order of " + std::string(model::Token(measure->view.kind)) +
                    " failed while it was applied, and ranks or weights may be unequal: " + ReasonOf(ack) +
                    ". No more orders before its weights are restored from a checkpoint.";
  s.alarms.Begin(Alarms::Key::kFailed, model::Severity::kCritical, std::move(finding), &desk.out->findings);
  EndMeasure(desk, measure, InterventionState::kRefused, "Failed at the client: " + ReasonOf(ack) + ".");
}

void CountAnswer(const Desk& desk, const model::Ack& ack, Told told, Measure* measure) {
  switch (ack.outcome) {
    case AckOutcome::kApplied: return CountApplied(desk, ack, told, measure);
    case AckOutcome::kVoid: return CountVoid(desk, ack, measure);
    case AckOutcome::kExpired: return CountExpired(desk, measure);
    case AckOutcome::kRefused:
    case AckOutcome::kForeign: return CountRefused(desk, ack, measure);
    case AckOutcome::kFailed: return CountFailed(desk, ack, measure);
  }
}

// A word about an order whose measure has gone on or ended. Only that it was applied all the same counts.
void TakeLateWord(const Desk& desk, const model::Ack& ack, EndedOrder* ended) {
  if (std::exchange(ended->counted, true) || ack.outcome != AckOutcome::kApplied) return;
  if (ended->order.attempt != desk.s->job->attempt || ended->order.epoch != desk.s->job->epoch) return;
  const model::Order order = ended->order;
  Follow(desk, order, ack.boundary);
  desk.m->changed_at = desk.s->now;
  if (Measure* measure = desk.m->Find(ended->number)) {
    ++measure->view.orders_applied;
    if (order.kind != measure->view.kind) {
      measure->companion_done = true;
      return Tell(measure->view, desk.out);
    }
    if (measure->out) Close(desk, false, measure);  // Void there: the registers have moved.
    measure->view.state = InterventionState::kApplied;
    measure->view.step_applied = ack.step;
    Tell(measure->view, desk.out);
    return BeginJudging(desk, order, ack.boundary, measure);
  }
  for (model::Intervention& view : desk.m->past) {
    if (view.id != order.intent_id) continue;
    ++view.orders_applied;
    view.step_applied = view.step_applied.value_or(ack.step);
    view.state = InterventionState::kJudged;
    view.outcome = view.outcome.value_or(model::Outcome::kInconclusive);
    view.reason = Joined(view.reason, "An order of it was applied all the same.");
    desk.out->changed.push_back(view);
  }
}

}  // namespace

bool TakeMeasureAck(const Desk& desk, const model::Ack& ack) {
  for (KindBook& book : desk.m->kinds)
    if (book.open && book.open->out && book.open->out->id == ack.order_id) {
      CountAnswer(desk, ack, Told::kByAck, &*book.open);
      return true;
    }
  for (EndedOrder& ended : desk.m->ended)
    if (ended.order.id == ack.order_id) {
      TakeLateWord(desk, ack, &ended);
      return true;
    }
  return false;
}

void SettleMeasuresByHello(const Desk& desk, const model::Hello& hello) {
  for (KindBook& book : desk.m->kinds) {
    if (!book.open || !book.open->out) continue;
    const model::Order& order = *book.open->out;
    const auto known = std::find_if(hello.last_outcomes.begin(), hello.last_outcomes.end(),
                                    [&order](const model::Ack& ack) { return ack.order_id == order.id; });
    if (known != hello.last_outcomes.end()) {
      CountAnswer(desk, *known, Told::kByHello, &*book.open);
    } else if (order.expires_boundary >= hello.boundary && desk.m->registers.Expects(order)) {
      desk.out->orders.push_back(order);
    } else {
      Close(desk, false, &*book.open);
      book.open->view.state = InterventionState::kApproved;
      Tell(book.open->view, desk.out);
    }
  }
}

void SettleOverdueMeasures(const Desk& desk, model::Boundary newest) {
  for (KindBook& book : desk.m->kinds)
    if (book.open && book.open->out && book.open->out->expires_boundary + kOverdue < newest)
      CountExpired(desk, &*book.open);
}

}  // namespace gyrostat::policy
