// The HTTP library's tasks on a fixed number of threads with a bounded queue. A task that finds the queue full runs at
// once on the accepting thread, told to refuse: it closes its socket instead of serving it.
#pragma once

#include <httplib.h>

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace gyrostat::web {

// Thread-safe.
class WorkerPool final : public httplib::TaskQueue {
 public:
  WorkerPool(size_t threads, size_t waiting_max);
  ~WorkerPool() override;

  void enqueue(std::function<void()> task) override;
  // Runs what waits, then ends the threads. Idempotent.
  void shutdown() override;

  // Whether the task running on this thread was handed over because the queue was full.
  static bool MustRefuse();

 private:
  void Run();

  const size_t waiting_max_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<std::function<void()>> waiting_ GYROSTAT_GUARDED_BY(mutex_);
  bool closed_ GYROSTAT_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace gyrostat::web
