#include "policy/settling.h"

#include <algorithm>
#include <utility>

#include "policy/lifecycle.h"
#include "policy/local_mode.h"
#include "policy/words.h"

namespace gyrostat::policy {
namespace {

using model::AckOutcome;
using model::InterventionState;

// Expiries in a row that are no accident any more (protocol.md §1.9).
constexpr uint32_t kLateMax = 3;

// Refusals in a row that end an intent which has worked before: one alone may be about its basis only.
constexpr uint32_t kRefusedMax = 3;

std::string ReasonOf(const model::Ack& ack) { return ack.reason.empty() ? "it gave no reason" : ack.reason; }

void CountApplied(const model::Ack& ack, const OrderBook::Settled& settled, ClipState* s, PolicyOutput* out) {
  s->late_in_row = 0;
  s->alarms.End(Alarms::Key::kLate, s->step, &out->findings);
  s->intents.ForgetRefusals();
  Intent* intent = s->intents.Find(settled.intent);
  if (intent == nullptr) return;
  if (!settled.first && !settled.detailed) return;
  model::Intervention& view = intent->view;
  if (settled.first) {
    ++view.orders_applied;
    intent->refused_in_row = 0;
  }
  if (settled.detailed) {
    intent->delays.Add(ack.boundary - std::min(settled.basis, ack.boundary));
    view.median_delay_boundaries = intent->delays.Median();
    view.step_applied = std::min(view.step_applied.value_or(ack.step), ack.step);
  }
  intent->Touch(ack.applied, s->mirror.ledger().layers(), s->mirror.ledger().heads());
  if (model::IsOpen(view.state)) {
    view.state = InterventionState::kApplied;
    intent->watch.Applied(ack.ledger_version_after);
  } else if (view.state != InterventionState::kJudged) {
    view.state = InterventionState::kJudged;
    view.outcome = model::Outcome::kInconclusive;
    view.reason = Joined(view.reason, "An order of it was applied all the same.");
  }
  Tell(intent->view, out);
}

void CountExpired(Intent* intent, ClipState* s, PolicyOutput* out) {
  if (intent != nullptr) ++intent->expired;
  if (++s->late_in_row < kLateMax) return;
  const auto reach = static_cast<double>(s->book.Reach());
  model::Finding finding;
  finding.step_begin = s->step;
  finding.value = s->book.Delay().value_or(reach);
  finding.expected = reach;
  finding.message = Count(s->late_in_row, "order") +
                    " in a row came too late to be applied: the loop through the daemon "
                    "is too slow for this job; set policy.qk_clip.where to local.";
  s->alarms.Begin(Alarms::Key::kLate, model::Severity::kWarning, std::move(finding), &out->findings);
}

void CountRefused(const model::Ack& ack, Intent* intent, ClipState* s, PolicyOutput* out) {
  if (intent == nullptr || intent != s->intents.open()) return;
  ++intent->refused_in_row;
  if (intent->view.orders_applied > 0 && intent->refused_in_row < kRefusedMax) return;
  const std::string why = "the client refused the last order: " + ReasonOf(ack);
  EndIntent(InterventionState::kRefused, "The client refused: " + ReasonOf(ack) + ".", s->intents.NextRefusalPause(),
            why, s, out);
}

void CountFailed(const model::Ack& ack, ClipState* s, PolicyOutput* out) {
  s->failed = "an order failed while it was applied, and weights may be partly scaled: " + ReasonOf(ack);
  model::Finding finding;
  finding.step_begin = s->step;
  finding.message = "An order failed while it was applied, and weights may be partly scaled: " + ReasonOf(ack) +
                    ". No more orders before its weights are restored from a checkpoint.";
  s->alarms.Begin(Alarms::Key::kFailed, model::Severity::kCritical, std::move(finding), &out->findings);
  EndIntent(InterventionState::kRefused, "Failed at the client: " + ReasonOf(ack) + ".", 0, "", s, out);
}

void Count(const model::Ack& ack, const OrderBook::Settled& settled, ClipState* s, PolicyOutput* out) {
  const bool timed =
      ack.outcome == AckOutcome::kApplied || ack.outcome == AckOutcome::kExpired || ack.outcome == AckOutcome::kVoid;
  if (timed && settled.detailed && ack.boundary >= settled.basis) s->book.TakeDelay(ack.boundary - settled.basis);
  if (ack.outcome == AckOutcome::kApplied) return CountApplied(ack, settled, s, out);
  if (!settled.first) return;
  Intent* intent = s->intents.Find(settled.intent);
  switch (ack.outcome) {
    case AckOutcome::kVoid:
      if (intent != nullptr) ++intent->voided;
      break;
    case AckOutcome::kExpired:
      CountExpired(intent, s, out);
      break;
    case AckOutcome::kRefused:
    case AckOutcome::kForeign:
      CountRefused(ack, intent, s, out);
      break;
    case AckOutcome::kFailed:
      CountFailed(ack, s, out);
      break;
    case AckOutcome::kApplied:
      break;
  }
}

// Whether the intent of an order is still open: what a mode or a person has ended since is not sent again.
bool IsWanted(const model::Order& order, const ClipState& s) {
  const Intent* open = s.intents.open();
  return open != nullptr && open->view.id == order.intent_id;
}

}  // namespace

void TakeAck(const model::Ack& ack, ClipState* s, PolicyOutput* out) {
  if (!s->job) return;
  if (TakeLocalAck(ack, s, out)) {
    if (ack.outcome == AckOutcome::kFailed) CountFailed(ack, s, out);
    return;
  }
  const auto settled = s->book.Settle(ack.order_id, OrderBook::Told::kByAck);
  if (!settled) return;
  // An ack of before the weights got another history comes again after the hello; its versions are of another ledger.
  if (settled->current && s->mirror.Take(ack.ledger_version_before, ack.ledger_version_after, ack.applied))
    WatchTugOfWar(s, out);
  Count(ack, *settled, s, out);
}

void SettleByHello(const model::Hello& hello, ClipState* s, PolicyOutput* out) {
  for (const model::Order& order : s->book.Out()) {
    const auto known = std::find_if(hello.last_outcomes.begin(), hello.last_outcomes.end(),
                                    [&order](const model::Ack& ack) { return ack.order_id == order.id; });
    if (known != hello.last_outcomes.end()) {
      model::Ack ack = *known;
      ack.applied = {};
      ack.ledger_version_after = hello.ledger_version;
      const auto settled = s->book.Settle(order.id, OrderBook::Told::kByHello);
      Count(ack, {.intent = settled->intent, .basis = settled->basis, .detailed = false}, s, out);
    } else if (order.expires_boundary >= hello.boundary && IsWanted(order, *s)) {
      out->orders.push_back(order);
    } else {
      s->book.Settle(order.id, OrderBook::Told::kByNobody);
    }
  }
}

void SettleOverdue(model::Boundary newest, ClipState* s, PolicyOutput* out) {
  for (const model::OrderId& id : s->book.Overdue(newest))
    if (const auto settled = s->book.Settle(id, OrderBook::Told::kByNobody))
      CountExpired(s->intents.Find(settled->intent), s, out);
}

}  // namespace gyrostat::policy
