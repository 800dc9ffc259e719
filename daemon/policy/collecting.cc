#include "policy/collecting.h"

#include <algorithm>
#include <utility>

#include "policy/lifecycle.h"
#include "policy/words.h"
#include "remedy/registers.h"

namespace gyrostat::policy {
namespace {

using model::InterventionKind;
using model::InterventionState;

// Whether maxima came with this report, and how long after those before.
void Watch(const model::Report& report, Measures* m) {
  if (!report.Has(model::Signal::kAttnLogitMax)) return;
  if (m->logits_at > 0 && report.boundary > m->logits_at)
    m->logits_gap = static_cast<uint32_t>(std::min<model::Boundary>(report.boundary - m->logits_at, 10000));
  m->logits_at = report.boundary;
}

bool IsAllowed(const Desk& desk) {
  const auto& kinds = desk.terms.options.automatic;
  return desk.terms.mode != model::Mode::kObserve &&
         std::find(kinds.begin(), kinds.end(), InterventionKind::kCollect) != kinds.end() &&
         !AgainstKind(InterventionKind::kCollect, *desk.s, *desk.m) && desk.m->registers.doubt().empty();
}

void Ask(const Desk& desk, const model::Report& report, uint32_t every, const std::string& why) {
  ClipState& s = *desk.s;
  Measures& m = *desk.m;
  std::optional<Measure>& open = m.of(InterventionKind::kCollect).open;
  if (!open) {
    Measure measure;
    measure.number = s.intents.ration().Take(s.now, Ration::Weight::kFree);
    measure.view.id = s.run + "/" + std::to_string(measure.number);
    measure.view.kind = InterventionKind::kCollect;
    measure.view.mode = desk.terms.mode;
    measure.view.author = "policy";
    measure.view.step_proposed = m.step;
    measure.view.reason = measure.opening = why;
    measure.wish.kind = InterventionKind::kCollect;
    open = std::move(measure);
  }
  model::Order order;
  order.id = s.NextOrderId();
  order.run = s.run;
  order.attempt = s.job->attempt;
  order.epoch = s.job->epoch;
  order.kind = InterventionKind::kCollect;
  order.basis = report.boundary;
  order.expires_boundary = report.boundary + s.book.Reach();
  order.intent_id = open->view.id;
  order.sets = {m.registers.Set(remedy::kRegisterCollectEvery, static_cast<float>(every))};
  open->out = order;
  open->view.state = InterventionState::kSent;
  ++open->view.orders;
  open->active_at = s.now;
  SayOf(desk, InterventionKind::kCollect, true, "collect " + std::to_string(every), why);
  Tell(open->view, desk.out);
  desk.out->orders.push_back(std::move(order));
}

}  // namespace

void Collect(const Desk& desk, const model::Report& report, model::Boundary newest) {
  Measures& m = *desk.m;
  Watch(report, &m);
  KindBook& book = m.of(InterventionKind::kCollect);
  if (book.open && book.open->out) return;  // Wait for the answer.
  if (report.boundary + desk.s->book.Reach() <= newest || desk.s->now < book.paused_until || !IsAllowed(desk)) return;
  const bool asked = m.collect_before.has_value();
  if (book.open && book.open->view.state == InterventionState::kApproved)  // The last order came to nothing.
    return Ask(desk, report, m.episode_since || !asked ? 1 : *m.collect_before,
               "The last order to collect was not applied; it is sent anew.");
  if (m.episode_since && !asked && m.logits_gap > 1) {
    const uint32_t before = m.logits_gap;
    Ask(desk, report, 1,
        "An episode is open: maxima of attention logits are collected at every step instead of every " +
            std::to_string(before) + ".");
    m.collect_before = before;
  } else if (!m.episode_since && asked) {
    const uint32_t before = *m.collect_before;
    if (book.open)
      Ask(desk, report, before, "The episode is over: maxima are collected at every " + std::to_string(before) +
                                    " steps again.");
    m.collect_before.reset();
  } else if (!m.episode_since && book.open && book.open->view.state == InterventionState::kApplied) {
    book.open->view.outcome = model::Outcome::kEffective;
    EndMeasure(desk, &*book.open, InterventionState::kJudged, "The episode is over, and the job collects as before.",
               0, "");
  }
}

}  // namespace gyrostat::policy
