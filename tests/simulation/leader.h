// The leader's side of the network: the real judge of orders and the real ring of unacknowledged messages around a
// stream that breaks, delays, and brings orders late, twice, changed or never.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "client/src/agreement/leader_desk.h"
#include "client/src/clip_mirror.h"
#include "client/src/frame.h"
#include "client/src/unacked_ring.h"
#include "simulation/checker.h"
#include "simulation/daemon.h"
#include "simulation/plan.h"
#include "simulation/scheduler.h"

namespace gyrostat::simulation {

class Leader {
 public:
  Leader(const Plan* plan, const client::Settings* settings, const client::Agreement* rank, Scheduler* scheduler,
         Dice* dice, Daemon* daemon, Checker* checker);

  client::LeaderDesk& desk() { return *desk_; }

  // R of a boundary was read, maybe before the training thread waits for it: reports the frame that it completed.
  void Report(const client::Frame& frame);
  // At the boundary: orders that have come wait for R from now on.
  void TakeOrders();
  // What the desk has to tell.
  void Tell();
  void NewEpoch(uint32_t epoch, model::Boundary boundary, const client::RestoredState* restored);
  // The ranks join again: all orders die, and are told.
  void Leave();
  // And go on as `rank` after a boundary, in an epoch of its own.
  void GoOn(const client::Agreement* rank, uint32_t world_size, model::Boundary boundary,
            const client::RestoredState* restored);
  // An order came over the wire.
  void Receive(const model::Order& order);
  void Acknowledged(uint64_t sequence);

  void Connect();
  void Break();
  bool connected() const { return connected_; }
  // The process is gone.
  void Die() { dead_ = true; }
  bool dead() const { return dead_; }

 private:
  void SayHello();
  void Push(client::WireKind kind, uint64_t sequence, std::string bytes);
  void SendAll();
  void Send(client::WireKind kind, const std::string& bytes);
  void Deliver(client::WireKind kind, const std::string& bytes);
  void PushAck(const model::Ack& ack);
  void BeginEpoch(uint32_t epoch, uint32_t world_size, model::Boundary boundary,
                  const client::RestoredState* restored);

  const Plan* plan_;
  const client::Settings* settings_;
  const client::Agreement* rank_;
  Scheduler* scheduler_;
  Dice* dice_;
  Daemon* daemon_;
  Checker* checker_;
  std::unique_ptr<client::LeaderDesk> desk_;
  client::ClipMirror mirror_;
  client::UnackedRing unacked_;
  std::deque<model::Order> arrived_;
  std::deque<model::LocalClips> untold_;
  uint64_t last_sequence_ = 0, stream_ = 0;
  Time up_clear_at_ = 0;
  bool connected_ = false, dead_ = false;
};

}  // namespace gyrostat::simulation
