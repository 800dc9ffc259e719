#include "policy/lifecycle.h"

#include <algorithm>
#include <utility>

#include "policy/words.h"

namespace gyrostat::policy {
namespace {

using model::InterventionState;
using model::Outcome;

// Added to the window before an outcome is given up: an order lives 64 boundaries at most.
constexpr RunTime kPatience = 64;

bool Waits(const Intent& intent) {
  return intent.view.state == InterventionState::kProposed || intent.view.state == InterventionState::kApproved;
}

void Disable(const Terms& terms, ClipState* s, PolicyOutput* out) {
  s->disabled = "qk_clip is disabled for this run after " + Count(s->failures, "failure") +
                ", and stays so until somebody sets the mode again";
  model::Finding finding;
  finding.step_begin = s->step;
  finding.value = s->failures;
  finding.expected = terms.options.failures_to_disable;
  finding.message = s->disabled + ".";
  s->alarms.Begin(Alarms::Key::kDisabled, model::Severity::kWarning, std::move(finding), &out->findings);
  EndIntent(InterventionState::kJudged, "The kind is disabled.", 0, "", s, out);
}

}  // namespace

void Tell(const model::Intervention& view, PolicyOutput* out) {
  for (model::Intervention& told : out->changed)
    if (told.id == view.id) {
      told = view;
      return;
    }
  out->changed.push_back(view);
}

Intent& OpenIntent(const Terms& terms, const model::Report& report, InterventionState state, std::string opening,
                   ClipState* s, PolicyOutput* out) {
  Intent intent;
  intent.view.state = state;
  intent.view.mode = terms.mode;
  intent.view.author = "policy";
  intent.view.step_proposed = report.step;
  intent.opening = std::move(opening);
  intent.tau = terms.tau();
  Intent& opened = s->intents.Open(s->run, s->now, std::move(intent));
  Tell(opened.view, out);
  return opened;
}

void CountOrder(const Terms& terms, const model::Report& report, Intent* intent, ClipState* s) {
  if (intent->view.orders++ == 0)
    intent->watch.Open(report, s->job->model.heads, intent->tau, terms.options.qk_clip.judged_boundaries);
  intent->active_at = s->now;
}

void EndIntent(InterventionState state, const std::string& sentence, uint64_t pause, const std::string& why_pause,
               ClipState* s, PolicyOutput* out) {
  Intent* intent = s->intents.open();
  if (intent == nullptr) return;
  if (intent->view.orders_applied > 0) {
    state = InterventionState::kJudged;
    if (!intent->view.outcome) intent->view.outcome = Outcome::kInconclusive;
  }
  const uint64_t number = intent->number;
  s->intents.End(state, sentence, s->now, pause, why_pause);
  s->decisions.Forget();
  Tell(s->intents.Find(number)->view, out);
}

void JudgeIntent(const Terms& terms, const model::Report& report, ClipState* s, PolicyOutput* out) {
  Intent* intent = s->intents.open();
  if (intent == nullptr) return;
  std::optional<Verdict> verdict = intent->watch.Observe(report, s->book.Delay().value_or(0));
  if (!verdict) return;
  intent->view.outcome = verdict->outcome;
  intent->verdict = std::move(verdict->reason);
  intent->view.reason = Joined(intent->opening, intent->verdict);
  Tell(intent->view, out);
  if (verdict->outcome != Outcome::kIneffective && verdict->outcome != Outcome::kHarmful) return;
  if (++s->failures >= terms.options.failures_to_disable) Disable(terms, s, out);
}

void CloseIfQuiet(const Terms& terms, ClipState* s, PolicyOutput* out) {
  const Intent* intent = s->intents.open();
  if (intent == nullptr) return;
  const RunTime quiet = s->now - intent->active_at;
  const uint32_t wanted = terms.options.qk_clip.quiet_boundaries, window = terms.options.qk_clip.judged_boundaries;
  if (quiet < wanted) return;
  const uint64_t pause = terms.options.cooldown_boundaries;
  const std::string why_pause = "cooling down after intent " + intent->view.id;
  const auto end = [&](InterventionState state, const std::string& sentence) {
    s->intents.ration().CoolDown(s->now + pause, why_pause);
    EndIntent(state, sentence, pause, why_pause, s, out);
  };
  if (Waits(*intent)) {
    end(InterventionState::kExpired, "No head was above tau for " + Count(wanted, "step") + ".");
  } else if (intent->view.orders_applied > 0) {
    if (intent->watch.done())
      end(InterventionState::kJudged, "");
    else if (quiet >= wanted + window + kPatience)
      end(InterventionState::kJudged, "No report showed what it did.");
  } else if (intent->expired > 0) {
    end(InterventionState::kExpired, "None of its orders was applied in time.");
  } else if (intent->voided > 0) {
    end(InterventionState::kVoid, "Its orders found nothing left to do.");
  } else {
    end(InterventionState::kLost, "No word of its orders came back.");
  }
}

void FollowTerms(const Terms& terms, const std::string& why, ClipState* s, PolicyOutput* out) {
  s->decisions.Forget();
  Intent* intent = s->intents.open();
  if (intent == nullptr) return;
  const bool proposed = intent->view.state == InterventionState::kProposed;
  if (terms.automatic()) {
    if (!proposed) return;
    intent->view.state = InterventionState::kApproved;
    intent->opening = Joined(intent->opening, "Goes ahead: " + why + ".");
    intent->view.reason = intent->opening;
    Tell(intent->view, out);
    return;
  }
  const bool may_wait = terms.mode != model::Mode::kObserve;
  if (may_wait && (proposed || intent->by_person)) return;
  EndIntent(InterventionState::kWithdrawn, "Stopped: " + why + ".", 0, "", s, out);
}

void EndHistory(const std::string& sentence, ClipState* s, PolicyOutput* out) {
  EndIntent(InterventionState::kLost, sentence, 0, "", s, out);
  s->book.Open(s->mirror.ledger().layers(), s->mirror.ledger().heads());
  for (const auto key : {Alarms::Key::kLate, Alarms::Key::kTugOfWar, Alarms::Key::kFailed})
    s->alarms.End(key, s->step, &out->findings);
  s->local = LocalMode();
  s->failed.clear();
  s->late_in_row = s->unread_in_row = 0;
  s->decisions.Forget();
}

void WatchTugOfWar(ClipState* s, PolicyOutput* out) {
  const std::optional<TugOfWar::Hit> hit = s->tug.Observe(s->mirror.ledger(), s->now);
  if (!hit) {
    s->alarms.End(Alarms::Key::kTugOfWar, s->step, &out->findings);
    return;
  }
  const double bound = static_cast<double>(TugOfWar::kTicksMax) / remedy::kTicksPerNat;
  model::Finding finding;
  finding.layer = hit->layer;
  finding.head = hit->head;
  finding.step_begin = s->step;
  finding.value = hit->nats;
  finding.expected = bound;
  finding.recommend = model::InterventionKind::kLrScale;
  finding.message = "Head " + HeadName(hit->layer, hit->head) + " was clipped by more than " + Number(bound) +
                    " nats within 1000 boundaries and grows back each time: the learning rate is the cause, the clip "
                    "only holds it.";
  s->alarms.Begin(Alarms::Key::kTugOfWar, model::Severity::kWarning, std::move(finding), &out->findings);
}

}  // namespace gyrostat::policy
