#include "web/worker_pool.h"

#include <utility>

namespace gyrostat::web {
namespace {

thread_local bool must_refuse = false;

}  // namespace

bool WorkerPool::MustRefuse() { return must_refuse; }

WorkerPool::WorkerPool(size_t threads, size_t waiting_max) : waiting_max_(waiting_max) {
  threads_.reserve(threads);
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkerPool::~WorkerPool() { shutdown(); }

void WorkerPool::enqueue(std::function<void()> task) {
  {
    base::MutexLock lock(mutex_);
    if (!closed_ && waiting_.size() < waiting_max_) {
      waiting_.push_back(std::move(task));
      task = nullptr;
    }
  }
  if (!task) {
    changed_.NotifyOne();
    return;
  }
  must_refuse = true;
  task();
  must_refuse = false;
}

void WorkerPool::shutdown() {
  {
    base::MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

void WorkerPool::Run() {
  while (true) {
    std::function<void()> task;
    {
      base::MutexLock lock(mutex_);
      while (waiting_.empty() && !closed_) changed_.Wait(mutex_);
      if (waiting_.empty()) return;
      task = std::move(waiting_.front());
      waiting_.pop_front();
    }
    task();
  }
}

}  // namespace gyrostat::web
