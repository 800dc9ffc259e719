// What befalls the job from outside: crashes, resets, repairs, checkpoints, a wire that plays tricks.
#include <algorithm>
#include <utility>

#include "client/src/state.h"
#include "simulation/job.h"

namespace gyrostat::simulation {

void Job::Misbehave(uint32_t r) {
  Rank& rank = ranks_[r];
  const model::Boundary b = rank.boundary;
  if (dice_.Chance(plan_.crash / static_cast<double>(ranks_.size())))
    return EndAttempt(dice_.Between(1, 50) * plan_.step);
  if (dice_.Chance(plan_.rank_lost / static_cast<double>(ranks_.size()))) return LoseRank(r);
  if (dice_.Chance(plan_.clock_jump)) rank.clock_ahead += static_cast<int64_t>(dice_.Between(0, 400)) - 200;
  if (dice_.Chance(plan_.alpha_touched)) {
    rank.alpha *= 1.01f;
    rank.alpha_touched_until = b + dice_.Between(1, 6);
  }
  if (dice_.Chance(plan_.kill_switch)) rank.not_ready_until = b + dice_.Between(1, 8);
  if (dice_.Chance(plan_.binding_breaks)) rank.not_ready_until = b + dice_.Between(1, 3);
  if (dice_.Chance(plan_.apply_fails)) rank.apply_fails = true;
  if (rank.agreement->unsure() && !stops_.contains(b + 2)) {
    if (dice_.Chance(0.3)) return EndAttempt(dice_.Between(1, 20) * plan_.step);
    if (dice_.Chance(0.5)) PlanStop(Stop::kRepair, b);
  }
  if (rank.agreement->must_load() && dice_.Chance(0.1)) PlanStop(Stop::kRepair, b);
  if (rank.held && dice_.Chance(0.05)) PlanStop(Stop::kRegroup, b);
  if (r != 0) return;
  if (dice_.Chance(plan_.regroup)) PlanStop(Stop::kRegroup, b);
  if (dice_.Chance(plan_.reset)) PlanStop(Stop::kReset, b);
  if (dice_.Chance(plan_.checkpoint)) PlanStop(Stop::kSave, b);
  if (dice_.Chance(plan_.register_orders)) ThrowRegisterOrder();
  if (dice_.Chance(plan_.mode_changes))
    daemon_.SetMode(dice_.Chance(0.6) ? model::Mode::kAct
                                      : dice_.Chance(0.5) ? model::Mode::kAdvise : model::Mode::kObserve);
}

void Job::AllStopped(Stop stop) {
  if (passed_ >= plan_.boundaries) {
    ending_ = true;
    return;
  }
  switch (stop) {
    case Stop::kReset:
      return Reset();
    case Stop::kRepair:
      return Repair();
    case Stop::kSave:
      return Save();
    case Stop::kRegroup:
      return Regroup(std::vector<bool>(ranks_.size(), false));
  }
}

std::unique_ptr<client::RestoredState> Job::Restored(const std::string& bytes) const {
  std::string error;
  return client::LoadState(bytes, plan_.layers, plan_.heads, &error);
}

void Job::NewEpoch(const client::RestoredState* restored, const RegisterTruth& registers) {
  const model::Boundary b = ranks_[0].boundary;
  for (uint32_t r = 0; r < ranks_.size(); ++r) {
    client::Agreement& rank = *ranks_[r].agreement;
    StateView view{.attempt = rank.attempt(), .epoch = rank.epoch() + 1, .ledger = {}};
    view.ledger.assign(plan_.head_count(), 0);
    if (restored != nullptr) {
      for (size_t i = 0; i < restored->ledger.size(); ++i)
        view.ledger[restored->ledger.layer[i] * plan_.heads + restored->ledger.head[i]] = restored->ledger.ticks[i];
    }
    const auto then = static_cast<int64_t>(restored == nullptr ? 0 : restored->boundary);
    checker_.OnNewEpoch(r, b, view,
                        restored == nullptr ? RegisterTruth{} : registers.Shifted(static_cast<int64_t>(b) - then));
    rank.NewEpoch(restored);
    ranks_[r].knows = true;
    ranks_[r].stood_at = 0;
  }
  leader_->NewEpoch(ranks_[0].agreement->epoch(), b, restored);
}

// The trainer goes back to its checkpoint without a new process, with our state or without.
void Job::Reset() {
  const auto restored = checkpoint_.state.empty() || dice_.Chance(0.3) ? nullptr : Restored(checkpoint_.state);
  Trace("rollback, %s", restored == nullptr ? "without state" : "with state");
  for (uint32_t r = 0; r < ranks_.size(); ++r) ranks_[r].model->CopyFrom(checkpoint_.shards[r % plan_.shards]);
  step_base_ = checkpoint_.step - static_cast<model::Step>(ranks_[0].boundary);
  NewEpoch(restored.get(), checkpoint_.registers);
  checker_.OnRepaired();
}

// The trainer copies weights and ledger of ranks that know theirs to all others: of those that had got furthest when
// ranks joined last.
void Job::Repair() {
  std::vector<const Rank*> sources;
  model::Boundary stood_at = 0;
  for (const Rank& rank : ranks_)
    if (rank.knows && !rank.agreement->unsure()) stood_at = std::max(stood_at, rank.stood_at);
  for (uint32_t shard = 0; shard < plan_.shards; ++shard) {
    const Rank* source = nullptr;
    for (uint32_t r = shard; r < ranks_.size(); r += plan_.shards)
      if (ranks_[r].knows && !ranks_[r].agreement->unsure() && ranks_[r].stood_at == stood_at) source = &ranks_[r];
    if (source == nullptr) return EndAttempt(dice_.Between(1, 20) * plan_.step);
    sources.push_back(source);
  }
  Trace("repair");
  const client::Agreement& from = *sources[0]->agreement;
  const auto state = Restored(client::SaveState(from.attempt(), from.epoch(), sources[0]->boundary, from.ledger(),
                                                from.Outcomes(), from.registers()));
  for (uint32_t r = 0; r < ranks_.size(); ++r) ranks_[r].model->CopyFrom(*sources[r % plan_.shards]->model);
  NewEpoch(state.get(), checker_.registers(static_cast<uint32_t>(sources[0] - ranks_.data())));
  checker_.OnRepaired();
}

void Job::Save() {
  for (uint32_t r = 0; r < ranks_.size(); ++r)
    if (checker_.diverged(r) || ranks_[r].agreement->unsure() || ranks_[r].agreement->must_load()) return;
  const auto saver = static_cast<uint32_t>(dice_.Between(0, ranks_.size() - 1));
  const Rank& rank = ranks_[saver];
  const client::Agreement& from = *rank.agreement;
  checkpoint_.state = client::SaveState(from.attempt(), from.epoch(), rank.boundary, from.ledger(), from.Outcomes(),
                                        from.registers());
  for (uint32_t s = 0; s < plan_.shards; ++s) checkpoint_.shards[s].CopyFrom(*ranks_[s].model);
  checkpoint_.step = step_base_ + static_cast<model::Step>(rank.boundary);
  checkpoint_.registers = checker_.registers(saver);
  checkpoint_.boundary = rank.boundary;
  checker_.OnSaved(rank.boundary, *Restored(checkpoint_.state));
  Trace("checkpoint");
}

void Job::TakeOrder(const model::Order& told, bool approved) {
  model::Order order = told;
  // An order that is sent again is the same order: its expiry hangs on its id alone.
  Dice of_order(plan_.seed ^ order.id.bytes[0] ^ uint64_t{order.id.bytes[1]} << 8 ^ uint64_t{order.id.bytes[2]} << 16);
  if (order.where == model::ClipWhere::kRemote && of_order.Chance(plan_.order_edge))
    order.expires_boundary = order.basis + of_order.Between(2, 5);
  checker_.OnOrder(order, approved);
  Trace("the daemon orders %zu heads on basis %llu until %llu", order.entries.size(),
        static_cast<unsigned long long>(order.basis), static_cast<unsigned long long>(order.expires_boundary));
  const int copies = dice_.Chance(plan_.order_lost) ? 0 : dice_.Chance(plan_.order_doubled) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    Time takes = dice_.Between(plan_.wire_min, plan_.wire_max);
    if (dice_.Chance(plan_.order_delayed)) takes += dice_.Between(1, 30) * plan_.step;
    // To whoever leads when it arrives, be it another attempt.
    scheduler_.After(takes, [this, order] { leader_->Receive(order); });
  }
}

// Streams break and daemons fall over, whatever the job does; both come back.
void Job::MindTheWire() {
  if (daemon_.up() && dice_.Chance(plan_.daemon_restarts)) {
    Trace("the daemon falls over");
    daemon_.Crash();
    leader_->Break();
    scheduler_.After(dice_.Between(1, 40) * plan_.step, [this] { daemon_.Restart(); });
  } else if (leader_->connected() && dice_.Chance(plan_.stream_breaks)) {
    Trace("the stream breaks");
    leader_->Break();
  } else if (!leader_->connected() && dice_.Chance(0.3)) {
    leader_->Connect();
  }
  scheduler_.After(plan_.step, [this] { MindTheWire(); });
}

}  // namespace gyrostat::simulation
