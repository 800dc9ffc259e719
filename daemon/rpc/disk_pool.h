// One thread for reads that touch the disk, so that none of gRPC's own threads waits for SQLite.
//
// One is enough: these reads are for people, a few a second, and all of them share one database.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>

#include "base/bounded_queue.h"

namespace gyrostat::rpc {

// Thread-safe.
class DiskPool {
 public:
  // At most `capacity` jobs wait.
  explicit DiskPool(size_t capacity);
  ~DiskPool();  // Stops.

  // Queues `job`; false, and `job` is not run, when the queue is full or stopped.
  bool Submit(std::function<void()> job);
  // Runs what is queued, then ends the thread. Idempotent; not from a job.
  void Stop();

 private:
  void Loop();

  base::BoundedQueue<std::function<void()>> jobs_;
  std::thread thread_;
};

}  // namespace gyrostat::rpc
