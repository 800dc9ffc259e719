// One open client: the training thread's halves, the sender and its thread.
//
// The sender thread is never joined. It shares ownership of everything it touches, so that closing can give up on it:
// then it and what it holds are leaked, and the job goes on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "client/src/actuator.h"
#include "client/src/lockstep.h"
#include "client/src/recorder.h"
#include "client/src/sender.h"
#include "client/src/settings.h"

namespace gyrostat::client {

// The thread around a Sender.
class Worker {
 public:
  Worker(std::shared_ptr<Shared> shared, const TransportApi* transport);

  // Starts the thread with all signals blocked. False when the system gives none. `self` keeps the worker alive.
  static bool Start(const std::shared_ptr<Worker>& self);

  // Asks the sender to flush for at most `flush` and waits for it for that and a little longer. False: it did not end
  // in time and is left to itself.
  bool Stop(base::Milliseconds flush);

 private:
  static void* Main(void* raw_self);
  void Run();
  void Pause();

  const std::shared_ptr<Shared> shared_;
  Sender sender_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false, finished_ = false;  // Guarded by mutex_.
  base::MonotonicTime flush_until_;           // Guarded by mutex_.
};

}  // namespace gyrostat::client

// The C ABI's handle.
struct gyro_client {
  // Inert until Start or Agree.
  gyro_client(gyrostat::client::Settings settings, const gyrostat::model::AttemptId& attempt);
  ~gyro_client();

  // Starts the sender. GYRO_OK or GYRO_NO_MEMORY.
  gyro_status Start(const gyrostat::client::TransportApi* transport);
  // The ranks of the job agree from here on. Before Start.
  void Agree(const gyrostat::client::JoinResult& join);
  // The ranks of the job join again, in another membership, as gyro_rejoin says. Blocks.
  gyro_status Rejoin(gyrostat::client::Settings next);
  bool active() const { return worker != nullptr || lockstep != nullptr; }
  gyrostat::client::BoundaryView Here();

  const std::shared_ptr<gyrostat::client::Shared> shared;
  gyrostat::client::Recorder recorder;
  gyrostat::client::Actuator actuator;  // Idle where there is a lockstep.
  std::unique_ptr<gyrostat::client::Settings> membership;  // Since a rejoin: what the lockstep goes by.
  std::unique_ptr<gyrostat::client::Lockstep> lockstep;
  std::shared_ptr<gyrostat::client::Worker> worker;
  std::string saved_state;  // Lent out by gyro_state_save.
};
