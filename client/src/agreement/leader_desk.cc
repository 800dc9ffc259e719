#include "client/src/agreement/leader_desk.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gyrostat::client {
namespace {

constexpr char kLateReason[] = "no R was left that could bring it before its last boundary";
constexpr char kOtherHistory[] = "the weights got another history before it was applied on all ranks";

// tau as lanes carry it: never below the job's bound by rounding.
float LaneTau(double tau, double tau_min) {
  const auto rounded = static_cast<float>(tau);
  return static_cast<double>(rounded) < tau_min ? std::nextafter(rounded, std::numeric_limits<float>::infinity())
                                                : rounded;
}

// Those of `waiting` that `ids` names, in order.
template <class Deque, class Visit>
void ForEach(Deque* waiting, const std::vector<model::OrderId>& ids, Visit visit) {
  for (auto& each : *waiting)
    if (std::find(ids.begin(), ids.end(), each.order.id) != ids.end()) visit(each);
}

}  // namespace

bool LeaderDesk::IsClip(const Waiting& waiting) const {
  return waiting.order.kind == model::InterventionKind::kQkClip && waiting.order.where == model::ClipWhere::kRemote;
}

void LeaderDesk::Take(const model::Order& order) {
  if (order.epoch != agreement_->epoch()) return End(order.id, model::AckOutcome::kForeign, kOtherHistory);
  if (full()) return End(order.id, model::AckOutcome::kRefused, "64 orders wait already for the ranks");
  Waiting& waiting = waiting_.emplace_back();
  waiting.order = order;
}

void LeaderDesk::RefuseAll(const std::string& why) {
  std::vector<model::OrderId> ids;
  for (const Waiting& waiting : waiting_) {
    const model::OrderId& id = waiting.order.id;
    const bool in_r = in_flight_ && std::find(in_flight_->orders.begin(), in_flight_->orders.end(), id) !=
                                        in_flight_->orders.end();
    if (!in_r) ids.push_back(id);
  }
  for (const model::OrderId& id : ids) End(id, model::AckOutcome::kRefused, why);
}

bool LeaderDesk::IsLate(const Waiting& waiting, model::Boundary decided_at) const {
  if (waiting.order.where == model::ClipWhere::kLocal) return false;
  if (decided_at > waiting.order.expires_boundary) return true;
  return IsClip(waiting) && waiting.order.basis + MeasuredRing::kBoundaries <= decided_at;
}

bool LeaderDesk::Resolve(Waiting* waiting) const {
  if (waiting->resolved) return true;
  const MeasuredRing::Slot* basis = agreement_->measured().Find(waiting->order.basis, boundary_);
  if (basis == nullptr) return false;
  const remedy::ClipLedger& ledger = agreement_->ledger();
  // The arithmetic of the rank, not the daemon's ticks: ranks compare bit for bit (protocol.md §8).
  for (const model::ClipEntry& entry : waiting->order.entries) {
    const uint32_t what = entry.layer * ledger.heads() + entry.head;
    if (entry.layer >= ledger.layers() || entry.head >= ledger.heads()) continue;
    const auto excess = Agreement::Excess(basis->maxima[what], proposal_.tau);
    const auto lambda = ledger.At(basis->version, entry.layer, entry.head);
    if (excess && lambda) waiting->left[what] = {waiting->order.basis, *excess, *lambda + *excess};
  }
  waiting->resolved = true;
  return true;
}

const Proposal* LeaderDesk::Propose(model::Boundary b, model::Step step) {
  boundary_ = b;
  step_ = step;
  if (in_flight_) return nullptr;
  const model::Boundary decided_at = b + agreement_->terms().lag;
  for (size_t i = 0; i < waiting_.size();) {
    const Waiting& waiting = waiting_[i];
    if (!IsLate(waiting, decided_at)) {
      ++i;
      continue;
    }
    const model::OrderId id = waiting.order.id;
    End(id, model::AckOutcome::kExpired, kLateReason);
  }
  while (!waiting_.empty() && !in_flight_ && !agreement_->unsure()) {
    if (IsClip(waiting_.front()))
      ProposeClips();
    else
      ProposeSets(waiting_.front());
    // A front that had nothing left is gone; one whose basis has not been read yet waits, and all behind it.
    if (!in_flight_ && !waiting_.empty() && IsClip(waiting_.front()) && !waiting_.front().resolved) break;
  }
  if (!in_flight_) return nullptr;
  in_flight_->boundary = b;
  return &proposal_;
}

void LeaderDesk::ProposeClips() {
  const model::Order& terms = waiting_.front().order;
  proposal_ = {};
  proposal_.tag = OrderTag::Of(terms.id);
  proposal_.kind = ProposalKind::kClip;
  proposal_.variant = terms.variant;
  proposal_.tau = LaneTau(terms.tau, agreement_->tau_min());
  proposal_.split = static_cast<float>(terms.split);
  InFlight flight;
  std::map<uint32_t, Entry> best;
  const double tau = terms.tau, split = terms.split;
  const model::ClipVariant variant = terms.variant;
  const remedy::ClipLedger& ledger = agreement_->ledger();
  std::vector<model::OrderId> done;
  for (Waiting& waiting : waiting_) {
    const model::Order& order = waiting.order;
    if (!IsClip(waiting) || order.tau != tau || order.variant != variant || order.split != split) continue;
    if (!Resolve(&waiting)) continue;
    std::erase_if(waiting.left, [&ledger](const auto& each) {
      return each.second.target <= ledger.At(each.first / ledger.heads(), each.first % ledger.heads());
    });
    if (waiting.left.empty()) {
      done.push_back(order.id);
      continue;
    }
    flight.orders.push_back(order.id);
    for (const auto& [what, entry] : waiting.left)
      if (const auto [at, fresh] = best.try_emplace(what, entry); !fresh && entry.target > at->second.target)
        at->second = entry;
  }
  for (const model::OrderId& id : done)
    End(id, model::AckOutcome::kVoid, "every head already stands at or beyond its target");
  for (const auto& [what, entry] : best) {
    if (proposal_.entries.size() == agreement_->terms().layout.entries) break;  // The rest follows.
    proposal_.entries.push_back(
        {what, static_cast<float>(entry.excess), static_cast<uint32_t>(boundary_ - entry.basis)});
    flight.targets[what] = entry.target;
  }
  if (!proposal_.entries.empty()) in_flight_ = std::move(flight);
}

void LeaderDesk::ProposeSets(const Waiting& waiting) {
  proposal_ = {};
  proposal_.tag = OrderTag::Of(waiting.order.id);
  proposal_.kind = ProposalKind::kRegisters;
  proposal_.intervention = waiting.order.kind;
  proposal_.ramp = waiting.order.ramp;
  for (const model::RegisterSet& set : waiting.order.sets)
    proposal_.entries.push_back({set.id, set.value, set.expected_version});
  if (waiting.order.kind == model::InterventionKind::kQkClip) {  // Local clipping.
    proposal_.variant = waiting.order.variant;
    proposal_.split = static_cast<float>(waiting.order.split);
    if (waiting.order.tau > 0) proposal_.tau = LaneTau(waiting.order.tau, agreement_->tau_min());
    proposal_.entries = {{0, proposal_.tau, agreement_->local_version() % kLaneIntegerMax}};
  }
  in_flight_ = InFlight{.boundary = 0, .orders = {waiting.order.id}, .targets = {}};
}

void LeaderDesk::NotIn(const char* why) {
  if (!in_flight_) return;
  const std::vector<model::OrderId> orders = std::exchange(in_flight_, std::nullopt)->orders;
  for (const model::OrderId& id : orders) End(id, model::AckOutcome::kRefused, why);
}

void LeaderDesk::Decided(const Action& action, model::Boundary b, model::Step step) {
  boundary_ = b;
  step_ = step;
  Confirmed(agreement_->confirmations());
  if (!in_flight_ || in_flight_->boundary != action.put_in) return;
  const std::vector<model::OrderId> orders = in_flight_->orders;
  switch (action.verdict) {
    case Verdict::kNone:
    case Verdict::kApply:
      return;
    case Verdict::kHeld:  // It may come again, until it expires.
      in_flight_.reset();
      return;
    case Verdict::kVoid:
      Strike(model::AckOutcome::kVoid, action.reason, &acks);
      return;
    case Verdict::kForeign:
    case Verdict::kRefused:
      in_flight_.reset();
      for (const model::OrderId& id : orders)
        End(id, action.verdict == Verdict::kForeign ? model::AckOutcome::kForeign : model::AckOutcome::kRefused,
            action.reason);
      return;
  }
}

void LeaderDesk::Strike(model::AckOutcome outcome, const std::string& reason, std::vector<model::Ack>* out) {
  const InFlight flight = *std::exchange(in_flight_, std::nullopt);
  ForEach(&waiting_, flight.orders, [&flight](Waiting& waiting) {
    std::erase_if(waiting.left, [&flight](const auto& each) {
      const auto taken = flight.targets.find(each.first);
      return taken != flight.targets.end() && each.second.target <= taken->second;
    });
  });
  for (const model::OrderId& id : flight.orders) {
    const auto at =
        std::find_if(waiting_.begin(), waiting_.end(), [&id](const Waiting& w) { return w.order.id == id; });
    if (at == waiting_.end() || !at->left.empty()) continue;
    if (!at->told) out->push_back(AckOf(id, outcome, reason));
    waiting_.erase(at);
  }
}

void LeaderDesk::Applied(const Action& action) {
  Unconfirmed& unconfirmed = unconfirmed_.emplace_back();
  unconfirmed.applied_at = boundary_;
  const bool ordered = action.verdict == Verdict::kApply && in_flight_;
  const bool clips = action.kind == model::InterventionKind::kQkClip;
  if (ordered) {
    // One order of a fold tells what all of it charged.
    const model::OrderId carrier = in_flight_->orders.front();
    model::Ack ack = AckOf(carrier, model::AckOutcome::kApplied, AppliedWord(action.kind));
    ack.ledger_version_before = action.version_before;
    if (clips) ack.applied = action.plan.charged;
    if (!clips) ack.ledger_version_after = action.version_before;
    unconfirmed.acks.push_back(std::move(ack));
    ForEach(&waiting_, {carrier}, [this](Waiting& waiting) {
      waiting.told = true;
      if (waiting.order.where == model::ClipWhere::kLocal) local_id_ = waiting.order.id;
    });
    Strike(model::AckOutcome::kApplied, {}, &unconfirmed.acks);
  }
  if (action.local && !(ordered && clips)) {
    unconfirmed.local = model::LocalClips{.boundary = boundary_,
                                          .ledger_version_before = action.version_before,
                                          .ledger_version_after = action.version_after,
                                          .applied = action.plan.charged};
  }
}

void LeaderDesk::Failed(const std::string& why) {
  if (!in_flight_) {
    if (!local_id_.IsZero()) acks.push_back(AckOf(local_id_, model::AckOutcome::kFailed, why));
    return;
  }
  const std::vector<model::OrderId> orders = std::exchange(in_flight_, std::nullopt)->orders;
  for (const model::OrderId& id : orders) End(id, model::AckOutcome::kFailed, why);
}

void LeaderDesk::Lost(const std::string& why, model::Boundary b, model::Step step) {
  boundary_ = b;
  step_ = step;
  Confirmed(agreement_->confirmations());
  if (in_flight_) Failed(why);
}

void LeaderDesk::Confirmed(const std::vector<Confirmation>& confirmations) {
  for (const Confirmation& each : confirmations) {
    while (!unconfirmed_.empty() && unconfirmed_.front().applied_at < each.applied_at) unconfirmed_.pop_front();
    if (unconfirmed_.empty() || unconfirmed_.front().applied_at != each.applied_at) continue;
    Unconfirmed told = std::move(unconfirmed_.front());
    unconfirmed_.pop_front();
    for (model::Ack& ack : told.acks) {
      ack.state_digest = each.digest;
      if (!each.equal) ack.outcome = model::AckOutcome::kFailed, ack.reason = "the ranks' states differ after it";
      acks.push_back(std::move(ack));
    }
    if (told.local && each.equal) local_clips.push_back(std::move(*told.local));
    if (told.local && !each.equal)
      acks.push_back(AckOf(local_id_, model::AckOutcome::kFailed, "the ranks' states differ after a local clip"));
  }
}

void LeaderDesk::NewEpoch() {
  in_flight_.reset();
  for (const Unconfirmed& each : unconfirmed_)
    for (const model::Ack& ack : each.acks)
      acks.push_back(AckOf(ack.order_id, model::AckOutcome::kForeign, kOtherHistory));
  unconfirmed_.clear();
  while (!waiting_.empty()) End(waiting_.front().order.id, model::AckOutcome::kForeign, kOtherHistory);
  local_clips.clear();
  local_id_ = {};
}

model::Ack LeaderDesk::AckOf(const model::OrderId& id, model::AckOutcome outcome, const std::string& reason) const {
  model::Ack ack;
  ack.order_id = id;
  ack.outcome = outcome;
  ack.boundary = boundary_;
  ack.step = step_;
  ack.ledger_version_before = ack.ledger_version_after = agreement_->ledger().version();
  ack.reason = reason;
  return ack;
}

void LeaderDesk::End(model::OrderId id, model::AckOutcome outcome, const std::string& reason) {
  const auto at = std::find_if(waiting_.begin(), waiting_.end(), [&id](const Waiting& w) { return w.order.id == id; });
  const bool told = at != waiting_.end() && at->told;
  if (at != waiting_.end()) waiting_.erase(at);
  if (!told || outcome == model::AckOutcome::kFailed) acks.push_back(AckOf(id, outcome, reason));
}

}  // namespace gyrostat::client
