#include "simulation/daemon.h"

#include <utility>

namespace gyrostat::simulation {
namespace {

constexpr size_t kSnapshotEvery = 200;  // Events.
constexpr char kRun[] = "simulated";

engine::RunOptions OptionsOf(const Plan& plan) {
  engine::RunOptions options;
  options.policy.mode = plan.mode;
  options.policy.qk_clip.tau = options.detect.attn_logit.tau = plan.tau;
  options.policy.qk_clip.where = plan.where;
  options.policy.budget_per_1000_steps = 1000;
  options.policy.failures_to_disable = 100;
  return options;
}

}  // namespace

Daemon::Daemon(const Plan* plan, Scheduler* scheduler, Dice* dice)
    : plan_(plan), scheduler_(scheduler), dice_(dice),
      run_(std::make_unique<engine::Run>(kRun, 1, OptionsOf(*plan))), snapshot_(run_->Save()) {}

void Daemon::Take(engine::EventBody body) {
  if (!up_) return;
  const auto now = static_cast<int64_t>(scheduler_->now() / 1000);
  const engine::Event event{{now, 1'700'000'000'000 + now}, std::move(body)};
  run_->Apply(event, &out_);
  if (out_.changed) journal_.push_back(event);
  // Copies: what is sent may call back.
  const policy::PolicyOutput policy = out_.policy;
  const uint64_t sequence = out_.acknowledge_sequence;
  if (journal_.size() >= kSnapshotEvery) {
    snapshot_ = run_->Save();
    journal_.clear();
  }
  for (const model::Intervention& intent : policy.changed) FollowIntent(intent);
  for (const model::Order& order : policy.orders)
    ports.order(order, order.where == model::ClipWhere::kLocal || run_->mode() == model::Mode::kAct ||
                           approved_.contains(order.intent_id));
  if (sequence > 0) ports.acknowledged(sequence);
}

void Daemon::FollowIntent(const model::Intervention& intent) {
  if (intent.state != model::InterventionState::kProposed || !asked_.insert(intent.id).second) return;
  const std::string id = intent.id;
  const bool yes = dice_->Chance(0.8);
  scheduler_->After(dice_->Between(1, 20) * plan_->step, [this, id, yes] {
    if (!up_) return;
    if (yes) {
      approved_.insert(id);
      Take(engine::ApproveEvent{id, "person", "simulated"});
    } else {
      Take(engine::RejectEvent{id, "person", "simulated"});
    }
  });
}

void Daemon::Crash() { up_ = false; }

void Daemon::Restart() {
  up_ = true;
  run_ = std::make_unique<engine::Run>(kRun, 1, OptionsOf(*plan_));
  run_->Load(snapshot_);
  for (const engine::Event& event : journal_) run_->Apply(event, &out_);
}

}  // namespace gyrostat::simulation
