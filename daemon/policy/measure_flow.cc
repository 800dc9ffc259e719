#include "policy/measure_flow.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/lifecycle.h"
#include "policy/measure_plan.h"
#include "policy/words.h"

namespace gyrostat::policy {
namespace {

using model::InterventionKind;
using model::InterventionState;
using model::Mode;

constexpr RunTime kPatience = 200;  // Of a proposal whose cause is over, and of an approval that cannot be sent.

PlanView ViewOf(const Desk& desk, model::Boundary newest) {
  const auto lag = static_cast<model::Boundary>(std::ceil(std::max(desk.s->book.Delay().value_or(1), 1.0)));
  return {.job = *desk.s->job, .options = desk.terms.options, .measures = *desk.m, .at = newest + lag + 1};
}

// The plan as things stand, where all that goes with it can follow too.
std::optional<Plan> Foresee(const Proposal& wish, const PlanView& view, std::string* why) {
  std::optional<Plan> plan = PlanMeasure(wish, view, why);
  if (plan && wish.kind == InterventionKind::kDeepnormAlpha && !PlanCompanion(view, why)) return std::nullopt;
  return plan;
}

// Which checkpoint is worth keeping, or going back to.
std::string HealthySentence(InterventionKind kind, const Recommendation& because, const Measures& m) {
  if (kind != InterventionKind::kCheckpoint && kind != InterventionKind::kRollback) return {};
  const model::Step first = std::min(m.episode_since.value_or(because.step_begin), because.step_begin);
  return "The last healthy step is " + std::to_string(first - 1) +
         ", before the first mover: pin the newest checkpoint that is no later.";
}

std::string OpeningOf(const Recommendation& because, const Plan& plan, const Measures& m) {
  return Joined(Joined(because.message, "Hence " + plan.what + "."),
                HealthySentence(because.kind, because, m));
}

// An order of the plan under the measure.
void Order(const Desk& desk, const model::Report& report, Plan plan, Measure* measure) {
  ClipState& s = *desk.s;
  model::Order order;
  order.id = s.NextOrderId();
  order.run = s.run;
  order.attempt = s.job->attempt;
  order.epoch = s.job->epoch;
  order.kind = plan.kind;
  order.basis = report.boundary;
  order.expires_boundary = report.boundary + s.book.Reach();
  order.intent_id = measure->view.id;
  order.sets = std::move(plan.sets);
  order.ramp = plan.ramp;
  if (plan.kind == InterventionKind::kSkipStep)
    measure->skip_boundary = static_cast<model::Boundary>(order.sets.front().value);
  measure->out = order;
  measure->view.state = InterventionState::kSent;
  ++measure->view.orders;
  measure->active_at = s.now;
  SayOf(desk, measure->view.kind, true, "ordered " + measure->view.id + " " + model::Token(plan.kind),
        plan.what + ": ordered under intent " + measure->view.id);
  Tell(measure->view, desk.out);
  desk.out->orders.push_back(std::move(order));
}

std::optional<Plan> NextPlan(const Measure& measure, const PlanView& view, std::string* why) {
  if (measure.again) return PlanRay(*measure.again, view);
  if (measure.wish.kind == InterventionKind::kDeepnormAlpha && !measure.companion_done) {
    // Not before it is sure that alpha itself can follow.
    if (!PlanMeasure(measure.wish, view, why)) return std::nullopt;
    std::optional<Plan> companion = PlanCompanion(view, why);
    if (!companion || !companion->sets.empty()) return companion;
  }
  return PlanMeasure(measure.wish, view, why);
}

// Sends what the measure wants next, if it may.
void Send(const Desk& desk, const model::Report& report, model::Boundary newest, Measure* measure) {
  const InterventionKind kind = measure->view.kind;
  std::optional<Hold> hold = AgainstKind(kind, *desk.s, *desk.m);
  if (!hold) hold = AgainstSending(*measure, report, *desk.s, *desk.m);
  std::string why;
  if (!hold) {
    if (auto plan = NextPlan(*measure, ViewOf(desk, newest), &why))
      return Order(desk, report, *std::move(plan), measure);
    if (kind == InterventionKind::kSkipStep)
      return EndMeasure(desk, measure, InterventionState::kVoid, "It came too late: " + why + ".");
    hold = Hold{"plan", std::move(why)};
  }
  SayOf(desk, kind, false, hold->topic, hold->reason);
  if (desk.s->now >= measure->active_at + kPatience)
    EndMeasure(desk, measure, InterventionState::kExpired, "It could not be sent: " + hold->reason + ".");
}

// Makes a topic that of one condition: it is said again of the next, and not when it flickers.
std::string Since(const Recommendation& because) {
  return " " + because.detector + " since " + std::to_string(because.step_begin);
}

void SayWould(const Desk& desk, const Recommendation& because, model::Boundary newest) {
  const InterventionKind kind = because.kind;
  std::string reason = std::string("mode is observe; would propose ") + model::Token(kind) + ": " + because.message;
  std::string why;
  if (const auto hold = AgainstKind(kind, *desk.s, *desk.m)) {
    reason = "mode is observe, and " + hold->reason + "; " + because.message;
  } else if (const auto plan = Foresee({.kind = kind}, ViewOf(desk, newest), &why)) {
    reason += " Then " + plan->what + ".";
  } else {
    reason = "mode is observe, and " + why + "; " + because.message;
  }
  SayOf(desk, kind, false, "observe" + Since(because), std::move(reason));
}

// Nothing of the kind is open, and something recommends it.
void Consider(const Desk& desk, const Recommendation& because, const model::Report& report, model::Boundary newest) {
  const InterventionKind kind = because.kind;
  if (desk.terms.mode == Mode::kObserve) return SayWould(desk, because, newest);
  std::optional<Hold> hold = AgainstKind(kind, *desk.s, *desk.m);
  if (!hold) hold = AgainstOpening(desk.terms, kind, &because, *desk.s, *desk.m);
  if (hold) return SayOf(desk, kind, false, hold->topic + Since(because), hold->reason);
  const Proposal wish{.kind = kind};
  std::string why;
  const auto plan = Foresee(wish, ViewOf(desk, newest), &why);
  if (!plan) return SayOf(desk, kind, false, "plan" + Since(because), because.message + " But " + why + ".");
  const bool unasked = GoesUnasked(desk.terms, because, *desk.s, *desk.m);
  if (unasked) {
    if (std::string disturbs = WouldDisturb(kind, *desk.m); !disturbs.empty())
      return SayOf(desk, kind, false, disturbs, disturbs);
    Measure& measure =
        OpenMeasure(desk, wish, &because, InterventionState::kApproved, OpeningOf(because, *plan, *desk.m));
    return Send(desk, report, newest, &measure);
  }
  const Measure& measure =
      OpenMeasure(desk, wish, &because, InterventionState::kProposed, OpeningOf(because, *plan, *desk.m));
  SayOf(desk, kind, true, "proposed " + measure.view.id,
        because.message + " Proposed as intent " + measure.view.id + ": " + plan->what + ".");
}

// The measure is open and not being judged.
void GoOn(const Desk& desk, const model::Report& report, model::Boundary newest, Measure* measure) {
  const RunTime now = desk.s->now;
  switch (measure->view.state) {
    case InterventionState::kProposed:
      if (measure->detector.empty()) return;  // A person's waits for a person.
      if (desk.m->For(measure->view.kind) != nullptr) measure->active_at = now;
      if (now >= measure->active_at + kPatience)
        EndMeasure(desk, measure, InterventionState::kExpired,
                   "What called for it is over for " + Count(kPatience, "step") + ".");
      return;
    case InterventionState::kApproved:
    case InterventionState::kSent:
      if (!measure->out) Send(desk, report, newest, measure);
      return;
    default:
      return;
  }
}

}  // namespace

void SayOf(const Desk& desk, InterventionKind kind, bool acted, const std::string& topic, std::string reason) {
  std::string& said = desk.m->of(kind).said;
  if (said == topic) return;
  said = topic;
  desk.out->decisions.push_back({.step = desk.m->step, .kind = kind, .acted = acted, .reason = std::move(reason)});
}

Measure& OpenMeasure(const Desk& desk, Proposal wish, const Recommendation* because, InterventionState state,
                     std::string opening) {
  ClipState& s = *desk.s;
  Measure measure;
  measure.number = s.intents.ration().Take(s.now, Ration::Weight::kCounted);
  measure.view.id = s.run + "/" + std::to_string(measure.number);
  measure.view.kind = wish.kind;
  measure.view.state = state;
  measure.view.mode = desk.terms.mode;
  measure.view.author = because != nullptr || wish.author.empty() ? "policy" : wish.author;
  measure.view.step_proposed = desk.m->step;
  measure.opening = std::move(opening);
  measure.view.reason = measure.opening;
  if (because != nullptr) {
    measure.detector = because->detector;
    measure.key = because->key;
    measure.gauge = GaugeOf(because->detector, because->signal);
  }
  measure.wish = std::move(wish);
  measure.active_at = s.now;
  std::optional<Measure>& open = desk.m->of(measure.view.kind).open;
  open = std::move(measure);
  Tell(open->view, desk.out);
  return *open;
}

void AnswerFindings(const Desk& desk, const model::Report& report, model::Boundary newest) {
  for (const InterventionKind kind : MeasureKinds()) {
    KindBook& book = desk.m->of(kind);
    if (book.open) {
      GoOn(desk, report, newest, &*book.open);
    } else if (const Recommendation* because = desk.m->For(kind)) {
      Consider(desk, *because, report, newest);
    }
  }
}

absl::Status ProposeMeasure(const Desk& desk, const Proposal& proposal) {
  ClipState& s = *desk.s;
  const InterventionKind kind = proposal.kind;
  const std::string token = model::Token(kind);
  const auto no = [](const std::string& why) { return absl::FailedPreconditionError(why); };
  if (std::string wrong = CheckProposal(proposal); !wrong.empty()) return absl::InvalidArgumentError(wrong);
  if (desk.terms.mode == Mode::kObserve)
    return no("run " + s.run + " is in mode observe, in which nothing is proposed or sent; `gyrostatctl mode " + s.run +
              " advise` lets proposals wait for approval");
  if (!s.job || !s.job->live) return no("run " + s.run + " has no attempt that reports, so nobody could be told");
  if (const auto hold = AgainstKind(kind, s, *desk.m)) return no(token + " is not proposed: " + hold->reason);
  if (const auto hold = AgainstOpening(desk.terms, kind, nullptr, s, *desk.m))
    return no(token + " is not proposed: " + hold->reason);
  std::optional<Measure>& open = desk.m->of(kind).open;
  if (open && open->view.state != InterventionState::kProposed)
    return no("intervention " + open->view.id + " of the same kind is " + model::Token(open->view.state) +
              "; wanted until it has ended");
  std::string why;
  const auto plan = Foresee(proposal, ViewOf(desk, desk.m->boundary), &why);
  if (!plan) return no(token + " is not proposed: " + why);
  if (open)
    EndMeasure(desk, &*open, InterventionState::kSuperseded, "Superseded by what " + proposal.author + " proposed.");
  std::string opening = "Proposed by " + proposal.author + (proposal.reason.empty() ? "." : ": " + proposal.reason);
  const Measure& measure = OpenMeasure(desk, proposal, nullptr, InterventionState::kProposed,
                                       Joined(opening, "Then " + plan->what + "."));
  SayOf(desk, kind, true, "proposed " + measure.view.id,
        proposal.author + " proposed " + token + " as intent " + measure.view.id + ": " + plan->what + ".");
  return absl::OkStatus();
}

void ApproveMeasure(const Desk& desk, const std::string& author, const std::string& reason, Measure* measure) {
  measure->view.state = InterventionState::kApproved;
  measure->view.author = author;
  measure->by_person = true;
  measure->opening = Joined(measure->opening, "Approved by " + author + (reason.empty() ? "." : ": " + reason));
  measure->view.reason = measure->opening;
  measure->active_at = desk.s->now;
  desk.m->of(measure->view.kind).said.clear();
  Tell(measure->view, desk.out);
}

void RejectMeasure(const Desk& desk, const std::string& author, const std::string& reason, Measure* measure) {
  measure->view.author = author;
  // Not proposed again at the next step: the person has just said no.
  EndMeasure(desk, measure, InterventionState::kRejected,
             "Rejected by " + author + (reason.empty() ? "." : ": " + reason), kPatience,
             author + " rejected intent " + measure->view.id);
}

void EndMeasure(const Desk& desk, Measure* measure, InterventionState state, const std::string& sentence, RunTime pause,
                const std::string& why_pause) {
  ClipState& s = *desk.s;
  KindBook& book = desk.m->of(measure->view.kind);
  model::Intervention& view = measure->view;
  if (view.state == InterventionState::kApplied) {
    state = InterventionState::kJudged;
    if (!view.outcome) view.outcome = model::Outcome::kInconclusive;
  }
  view.state = state;
  view.reason = Joined(measure->opening, Joined(measure->verdict, sentence));
  if (measure->out) desk.m->ended.push_back({*measure->out, measure->number, false});
  if (desk.m->ended.size() > Measures::kEndedMax) desk.m->ended.pop_front();
  if (s.now + pause > book.paused_until) {
    book.paused_until = s.now + pause;
    book.why_paused = why_pause;
  }
  s.intents.ration().CoolDown(s.now + desk.terms.options.cooldown_boundaries, "cooling down after intent " + view.id);
  book.said.clear();
  Tell(measure->view, desk.out);
  desk.m->past.push_back(view);
  if (desk.m->past.size() > Measures::kEndedMax) desk.m->past.pop_front();
  book.open.reset();
}

void FollowTermsOfMeasures(const Desk& desk, const std::string& why) {
  for (KindBook& book : desk.m->kinds) {
    book.said.clear();
    if (!book.open) continue;
    Measure& measure = *book.open;
    const InterventionKind kind = measure.view.kind;
    const InterventionState state = measure.view.state;
    if (desk.terms.mode == Mode::kObserve) {
      EndMeasure(desk, &measure, InterventionState::kWithdrawn, "Stopped: " + why + ".");
    } else if (desk.terms.mode == Mode::kAct) {
      const Recommendation* because = desk.m->For(kind);
      if (state != InterventionState::kProposed || because == nullptr || measure.detector.empty() ||
          !GoesUnasked(desk.terms, *because, *desk.s, *desk.m))
        continue;
      measure.view.state = InterventionState::kApproved;
      measure.opening = Joined(measure.opening, "Goes ahead: " + why + ".");
      measure.view.reason = measure.opening;
      measure.active_at = desk.s->now;
      Tell(measure.view, desk.out);
    } else if (kind != InterventionKind::kCollect && !measure.by_person && state != InterventionState::kProposed &&
               state != InterventionState::kApplied) {
      EndMeasure(desk, &measure, InterventionState::kWithdrawn, "Stopped: " + why + ".");
    }
  }
}

}  // namespace gyrostat::policy
