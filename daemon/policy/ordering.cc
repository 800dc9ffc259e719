#include "policy/ordering.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/lifecycle.h"
#include "policy/planner.h"
#include "policy/words.h"

namespace gyrostat::policy {
namespace {

using model::InterventionState;
using model::Signal;

// The mirror hears of a clip by its ack, which may come a little after the report that already ran under it.
constexpr uint32_t kUnreadMax = 8;

struct No {
  Why why = Why::kNone;
  std::string reason;
};

bool IsOverflow(const model::Report& report) {
  for (const Signal signal : {Signal::kLoss, Signal::kGradNorm})
    if (report.Has(signal) && !std::isfinite(report.Scalar(signal))) return true;
  return false;
}

// Why this run is not clipped now, whatever its reports show.
std::optional<No> AgainstRun(const ClipTerms& clip, const ClipState& s) {
  if (!clip.obstacle.empty()) return No{Why::kObstacle, clip.obstacle};
  if (!s.disabled.empty()) return No{Why::kDisabled, s.disabled};
  if (!s.failed.empty()) return No{Why::kFailed, s.failed};
  return std::nullopt;
}

// Why this report may not be acted on.
std::optional<No> AgainstReport(const model::Report& report, model::Boundary newest, const Look& look,
                                const ClipState& s) {
  if (look.nonfinite > 0)
    return No{Why::kNonFinite, "the maximum of " + Count(look.nonfinite, "head") + " is not finite, first " +
                                   HeadName(look.first_nonfinite.layer, look.first_nonfinite.head) + " at " +
                                   Number(look.first_nonfinite.max) + ": nothing is known that a clip could cure"};
  if (const model::Boundary reach = s.book.Reach(); report.boundary + reach <= newest)
    return No{Why::kStale, "the report is of boundary " + std::to_string(report.boundary) + ", the job is at " +
                               std::to_string(newest) + ": evidence older than " + std::to_string(reach) +
                               " boundaries orders nothing"};
  if (IsOverflow(report)) return No{Why::kOverflow, "loss or gradient of this step is not finite"};
  if (look.identical)
    return No{Why::kIdentical, "all heads show one maximum, " + Number(look.worst.max) +
                                   ": the measurement sees something else than the heads"};
  return std::nullopt;
}

// Why no intent may open on this report.
std::optional<No> AgainstOpening(const Terms& terms, const ClipState& s) {
  if (std::string held = s.intents.HeldBack(s.now, terms.options); !held.empty())
    return No{Why::kHeldBack, std::move(held)};
  if (IsNearlyOver(*s.job, s.step)) return No{Why::kRunEnds, "the run is in its last hundredth: nothing new is begun"};
  return std::nullopt;
}

void Say(Why why, const std::string& reason, const Look& look, ClipState* s, PolicyOutput* out) {
  s->decisions.Say(s->step, why, reason, look.flagged + look.nonfinite, &out->decisions);
}

// Sends an order for what the report shows beyond what is on its way.
void Order(const Terms& terms, const model::Report& report, const Look& look, const ClipTerms& clip, ClipState* s,
           PolicyOutput* out) {
  if (!s->mirror.doubt().empty()) return Say(Why::kLedger, s->mirror.doubt(), look, s, out);
  const remedy::ClipLedger& ledger = s->mirror.ledger();
  std::vector<remedy::Ticks> at_forward;
  if (!ledger.ReadAt(report.ledger_version, &at_forward)) {
    if (++s->unread_in_row >= kUnreadMax)
      Say(Why::kLedger, "the job's forwards run under versions of its clip ledger that were not heard of", look, s,
          out);
    return;
  }
  s->unread_in_row = 0;
  if (s->book.Full())
    return Say(Why::kUnanswered, Count(OrderBook::kOutMax, "order") + " are unanswered", look, s, out);

  const PlanBasis basis{.tau = terms.tau(),
                        .threshold = clip.threshold,
                        .step_min = std::max(remedy::LnTicks(clip.threshold / terms.tau()), remedy::Ticks{1}),
                        .at_forward = &at_forward,
                        .on_its_way = &s->book.Targets(),
                        .now = &ledger};
  std::vector<model::ClipEntry> entries = PlanEntries(report.Array(Signal::kAttnLogitMax), basis);
  if (entries.empty()) return;

  Intent* intent = s->intents.open();
  if (intent == nullptr)
    intent = &OpenIntent(terms, report, InterventionState::kSent, look.Sentence(terms.tau()) + ".", s, out);
  if (intent->view.state == InterventionState::kApproved) intent->view.state = InterventionState::kSent;
  const model::Order order{.id = s->NextOrderId(),
                           .run = s->run,
                           .attempt = s->job->attempt,
                           .epoch = s->job->epoch,
                           .kind = model::InterventionKind::kQkClip,
                           .where = model::ClipWhere::kRemote,
                           .basis = report.boundary,
                           .expires_boundary = report.boundary + s->book.Reach(),
                           .intent_id = intent->view.id,
                           .tau = terms.tau(),
                           .variant = clip.shape->variant,
                           .split = clip.shape->split,
                           .entries = std::move(entries)};
  s->book.Add(order, intent->number);
  CountOrder(terms, report, intent, s);
  Tell(intent->view, out);
  Say(Why::kOrdered, look.Sentence(terms.tau()) + ": ordered under intent " + intent->view.id, look, s, out);
  out->orders.push_back(order);
}

void Propose(const Terms& terms, const model::Report& report, const Look& look, ClipState* s, PolicyOutput* out) {
  const Intent& intent =
      OpenIntent(terms, report, InterventionState::kProposed, look.Sentence(terms.tau()) + ".", s, out);
  Say(Why::kProposed, look.Sentence(terms.tau()) + ": proposed as intent " + intent.view.id, look, s, out);
}

void SayObserve(const Terms& terms, const Look& look, const ClipTerms& clip, ClipState* s, PolicyOutput* out) {
  std::string reason = "mode is observe; would clip " + look.Sentence(terms.tau());
  if (look.nonfinite > 0)
    reason = "mode is observe; " + Count(look.nonfinite, "head") + " not finite, which no clip could cure";
  if (!clip.obstacle.empty()) reason = "mode is observe, and " + clip.obstacle + "; " + look.Sentence(terms.tau());
  Say(Why::kObserve, reason, look, s, out);
}

}  // namespace

void AnswerReport(const Terms& terms, const model::Report& report, model::Boundary newest, ClipState* s,
                  PolicyOutput* out) {
  const std::span<const float> maxima = report.Array(Signal::kAttnLogitMax);
  if (maxima.empty()) return;
  const ClipTerms clip = TermsFor(*s->job, terms.options.qk_clip);
  if (clip.shape && maxima.size() != size_t{clip.shape->layers} * clip.shape->heads) return;
  const Look look = LookAt(maxima, std::max(s->job->model.heads, 1u), terms.tau(), clip.threshold);
  const bool observe = terms.mode == model::Mode::kObserve;
  if (look.flagged == 0 && look.nonfinite == 0) {
    // Said before it matters: a job that can never be clipped had better know.
    if (!observe && !clip.obstacle.empty()) return Say(Why::kObstacle, clip.obstacle, look, s, out);
    if (!observe && look.above > 0 && s->intents.open() == nullptr)
      Say(Why::kDeadBand,
          look.Sentence(terms.tau()) + ", inside the dead band up to " + Number(clip.threshold) +
              " of weights without an fp32 master",
          look, s, out);
    return;
  }
  if (observe) return SayObserve(terms, look, clip, s, out);
  if (const std::optional<No> no = AgainstRun(clip, *s)) return Say(no->why, no->reason, look, s, out);
  Intent* intent = s->intents.open();
  if (terms.local() && (terms.automatic() || (intent != nullptr && intent->by_person))) {
    // The client judges by itself; its intent opens, or goes on, when it says what it did.
    if (intent != nullptr && intent->view.state == InterventionState::kApproved) intent->active_at = s->now;
    return;
  }
  if (const std::optional<No> no = AgainstReport(report, newest, look, *s))
    return Say(no->why, no->reason, look, s, out);
  if (intent == nullptr) {
    if (const std::optional<No> no = AgainstOpening(terms, *s)) return Say(no->why, no->reason, look, s, out);
    if (!terms.automatic()) return Propose(terms, report, look, s, out);
  } else if (intent->view.state == InterventionState::kProposed) {
    intent->active_at = s->now;
    return;
  }
  if (!terms.local()) Order(terms, report, look, clip, s, out);
}

}  // namespace gyrostat::policy
