// Rounds on the device: lanes go to it, are reduced by NCCL and come back, all on one stream, in program order.
//
// Where sums are wanted, a MAX is only staged when it is begun, and launched with the SUM that follows as one group; a
// MAX that is waited for without one (the join) is launched then. All ranks do alike, as they call alike.
//
// Waiting asks for the one event behind the round, and for NCCL's asynchronous error. Once anything has failed, nothing
// is launched any more: this rank is out of step. Its own communicator is then aborted: a kernel of NCCL that waits for
// a dead peer would hold the stream, and with it the training, for ever.
//
// One thread, the one that launches the training's kernels, calls everything.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "client/collectives/device_table.h"
#include "client/collectives/round_worker.h"

namespace gyrostat::collectives {

struct DeviceRoundsOptions {
  int rank = 0, size = 1;
  bool sums = false;
  const gyro_nccl_id* id = nullptr;  // Of a communicator of ours, or:
  void* communicator = nullptr;      // The job's.
  void* stream = nullptr;
  size_t lanes_max = 262144;
};

class DeviceRounds {
 public:
  // Allocates, and joins the communicator: blocks until all ranks do. Null and a reason where that failed.
  static std::unique_ptr<DeviceRounds> Open(const DeviceTable& table, const DeviceRoundsOptions& options,
                                            std::string* error);
  ~DeviceRounds();
  DeviceRounds(const DeviceRounds&) = delete;
  DeviceRounds& operator=(const DeviceRounds&) = delete;

  // Queues on the stream and returns. False, with a reason in error().
  bool Begin(Reduction kind, const float* lanes, size_t count);
  // Blocks until the round is over, and writes what it brought. False: it failed; `lanes` are as they were.
  bool Wait(Reduction kind, float* lanes, size_t count);
  // Whether a Wait for what was begun comes back at once: nothing is staged only, and the event has passed. One query
  // of that event at most; what fails in it is left to Wait to find.
  bool Done() const;
  // Whether all that was launched was over within `budget`. What is not over keeps its buffers for ever.
  bool Finish(std::chrono::milliseconds budget);

  const std::string& error() const { return error_; }

 private:
  struct Lane {
    float* host = nullptr;    // Pinned.
    float* device = nullptr;
    size_t count = 0;
    enum { kIdle, kStaged, kLaunched } state = kIdle;
  };

  DeviceRounds(const DeviceTable& table, const DeviceRoundsOptions& options) : table_(table), options_(options) {}
  bool Prepare();
  // Everything that is staged, as one group, and the event behind it.
  bool Launch();
  bool QueueStaged();
  bool ReduceStaged();
  // Asks for the event, also while this thread captures a stream into a graph: it was recorded outside of that.
  int Query() const;
  // Until the event has passed or NCCL has failed.
  bool Await();
  bool Fail(const std::string& why);
  bool Cuda(int code, const char* call);
  bool Nccl(int code, const char* call);
  const char* Name(Reduction kind) const { return kind == Reduction::kMax ? "a MAX" : "a SUM"; }

  const DeviceTable table_;
  const DeviceRoundsOptions options_;
  void* communicator_ = nullptr;
  void* event_ = nullptr;
  Lane lanes_[2];
  bool failed_ = false;
  bool under_way_ = false;  // Something was queued, and the event behind it has not passed ...
  bool marked_ = false;     // ... if it could be recorded.
  std::string error_;
};

}  // namespace gyrostat::collectives
