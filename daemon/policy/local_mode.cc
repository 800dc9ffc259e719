#include "policy/local_mode.h"

#include <algorithm>
#include <utility>

#include "policy/lifecycle.h"
#include "policy/words.h"

namespace gyrostat::policy {
namespace {

using model::InterventionState;

// As long as a remote order lives at the least.
constexpr uint32_t kAnswerWithin = 16;

// The tau the client should have; 0: it should not clip. `*why_not` says why, where there is a choice.
double Wanted(const Terms& terms, const ClipState& s, std::string* why_not) {
  const auto off = [why_not](std::string reason) {
    *why_not = std::move(reason);
    return 0.0;
  };
  if (!terms.local()) return off("clipping is remote");
  if (terms.mode == model::Mode::kObserve) return off("mode is observe");
  if (const ClipTerms clip = TermsFor(*s.job, terms.options.qk_clip); !clip.obstacle.empty()) return off(clip.obstacle);
  for (const std::string* block : {&s.disabled, &s.failed, &s.local.refused})
    if (!block->empty()) return off(*block);
  const Intent* intent = s.intents.open();
  if (intent != nullptr && !intent->authorized) return off("the client clipped without being told to");
  if (terms.automatic()) {
    if (intent != nullptr) return terms.tau();
    std::string over = s.intents.OverBudget(s.now, terms.options);
    return over.empty() ? terms.tau() : off(std::move(over));
  }
  if (intent != nullptr && intent->by_person) return intent->tau;
  return off("nobody has approved it");
}

void Push(double tau, const Terms& terms, ClipState* s, PolicyOutput* out) {
  std::string why;
  const auto shape = remedy::ShapeFor(s->job->model, terms.options.qk_clip.variant, &why);
  model::Order order;
  order.id = s->NextOrderId();
  order.run = s->run;
  order.attempt = s->job->attempt;
  order.epoch = s->job->epoch;
  order.where = model::ClipWhere::kLocal;
  order.tau = tau;
  if (shape) order.variant = shape->variant, order.split = shape->split;
  if (const Intent* intent = s->intents.open()) order.intent_id = intent->view.id;
  out->orders.push_back(order);
  s->local.pushed = std::move(order);
  s->local.answered_at.reset();
  s->local.waited = 0;
  s->local.tau = tau;
}

// A clip of before the client heard that it shall stop.
bool IsOvertaken(const LocalMode& local, model::Boundary boundary) {
  return local.pushed && local.pushed->tau == 0 && (!local.answered_at || boundary <= *local.answered_at);
}

void CountClips(const Terms& terms, const model::Report& report, Intent* intent, ClipState* s) {
  const model::LocalClips& clips = report.local_clips;
  model::Intervention& view = intent->view;
  CountOrder(terms, report, intent, s);
  ++view.orders_applied;
  // Told with a later report than its own; the steps between are taken to be as many as the boundaries.
  const model::Boundary ago = report.boundary - std::min(clips.boundary, report.boundary);
  if (!view.step_applied) view.step_applied = report.step - static_cast<model::Step>(ago);
  intent->delays.Add(0);  // Local mode clips from the boundary's own maxima.
  view.median_delay_boundaries = intent->delays.Median();
  intent->Touch(clips.applied, s->mirror.ledger().layers(), s->mirror.ledger().heads());
}

}  // namespace

void Arm(const Terms& terms, const std::string& why, ClipState* s, PolicyOutput* out) {
  if (!s->job || !s->job->live) return;
  std::string why_not;
  const double wanted = Wanted(terms, *s, &why_not);
  if (s->local.tau == wanted) return;
  Push(wanted, terms, s, out);
  const std::string reason = wanted > 0 ? "the client was told to clip by itself at tau " + Number(wanted)
                                        : "the client was told to stop clipping by itself: " + why_not;
  s->decisions.Say(s->step, wanted > 0 ? Why::kLocalOn : Why::kLocalOff,
                   why.empty() ? reason : reason + " (" + why + ")", 0, &out->decisions);
}

void RemindLocal(ClipState* s, PolicyOutput* out) {
  if (!s->local.pushed || s->local.answered_at || ++s->local.waited < kAnswerWithin) return;
  s->local.waited = 0;
  out->orders.push_back(*s->local.pushed);
}

void ResendLocal(const model::Hello& hello, ClipState* s, PolicyOutput* out) {
  if (!s->local.pushed) return;
  for (const model::Ack& known : hello.last_outcomes)
    if (known.order_id == s->local.pushed->id) {
      TakeLocalAck(known, s, out);
      return;
    }
  s->local.answered_at.reset();
  s->local.waited = 0;
  out->orders.push_back(*s->local.pushed);
}

bool TakeLocalAck(const model::Ack& ack, ClipState* s, PolicyOutput* out) {
  if (!s->local.pushed || s->local.pushed->id != ack.order_id) return false;
  s->local.answered_at = ack.boundary;
  if (ack.outcome == model::AckOutcome::kApplied || s->local.pushed->tau == 0) return true;
  s->local.tau = 0;
  s->local.refused = "the client answered " + std::string(model::Token(ack.outcome)) +
                     " to local clipping: " + (ack.reason.empty() ? "it gave no reason" : ack.reason);
  s->decisions.Say(s->step, Why::kObstacle, s->local.refused, 0, &out->decisions);
  EndIntent(InterventionState::kRefused, "Ended: " + s->local.refused + ".", 0, "", s, out);
  return true;
}

void TakeLocalClips(const Terms& terms, const model::Report& report, ClipState* s, PolicyOutput* out) {
  const model::LocalClips& clips = report.local_clips;
  if (clips.applied.size() == 0) return;
  s->mirror.Take(clips.ledger_version_before, clips.ledger_version_after, clips.applied);
  WatchTugOfWar(s, out);
  Intent* intent = s->intents.open();
  if (intent != nullptr && intent->view.state == InterventionState::kProposed) {
    s->local.tau.reset();  // Not what was proposed: it is told to stop.
    return;
  }
  const bool told = s->local.tau.value_or(0) > 0, overtaken = !told && IsOvertaken(s->local, clips.boundary);
  if (!told && !overtaken) s->local.tau.reset();
  if (intent == nullptr && overtaken) {
    if (Intent* last = s->intents.Latest()) {
      CountClips(terms, report, last, s);
      Tell(last->view, out);
      return;
    }
  }
  if (intent == nullptr) {
    const std::string first = HeadName(clips.applied.layer[0], clips.applied.head[0]);
    const std::string opening = Count(clips.applied.size(), "head") + " clipped by the client itself, first " + first +
                                (told        ? ", above tau " + Number(*s->local.tau)
                                 : overtaken ? ""
                                             : ", unbidden") +
                                ".";
    intent = &OpenIntent(terms, report, InterventionState::kApplied, opening, s, out);
    intent->authorized = told;
  }
  CountClips(terms, report, intent, s);
  intent->view.state = InterventionState::kApplied;
  intent->watch.Applied(clips.ledger_version_after);
  Tell(intent->view, out);
  if (overtaken) EndIntent(InterventionState::kJudged, "Stopped.", 0, "", s, out);
}

}  // namespace gyrostat::policy
