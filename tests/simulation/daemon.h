// The daemon: the real engine::Run with its real policy, a journal that survives, and persons who approve.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/run.h"
#include "simulation/plan.h"
#include "simulation/scheduler.h"

namespace gyrostat::simulation {

class Daemon {
 public:
  // What leaves once it is journalled.
  struct Ports {
    std::function<void(const model::Order&, bool approved)> order;
    std::function<void(uint64_t sequence)> acknowledged;
  };

  Daemon(const Plan* plan, Scheduler* scheduler, Dice* dice);

  Ports ports;
  bool up() const { return up_; }
  void Take(engine::EventBody body);
  // Falls over and comes back: what was journalled is replayed, what it caused is not sent again.
  void Crash();
  void Restart();
  void SetMode(model::Mode mode) { Take(engine::ModeEvent{mode, "person", "simulated"}); }
  model::Mode mode() const { return run_->mode(); }

 private:
  void FollowIntent(const model::Intervention& intent);

  const Plan* plan_;
  Scheduler* scheduler_;
  Dice* dice_;
  std::unique_ptr<engine::Run> run_;
  engine::RunOutput out_;
  std::string snapshot_;
  std::vector<engine::Event> journal_;  // Since the snapshot.
  std::set<std::string> approved_, asked_;
  bool up_ = true;
};

}  // namespace gyrostat::simulation
