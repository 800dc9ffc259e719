#include "rpc/disk_pool.h"

#include <utility>
#include <vector>

#include "base/clock.h"

namespace gyrostat::rpc {

DiskPool::DiskPool(size_t capacity) : jobs_(capacity), thread_([this] { Loop(); }) {}

DiskPool::~DiskPool() { Stop(); }

bool DiskPool::Submit(std::function<void()> job) { return jobs_.TryPush(std::move(job)); }

void DiskPool::Stop() {
  jobs_.Close();
  if (thread_.joinable()) thread_.join();
}

void DiskPool::Loop() {
  std::vector<std::function<void()>> batch;
  while (jobs_.PopAllUntil(base::MonotonicTime::max(), &batch)) {
    for (const auto& job : batch) job();
    batch.clear();
  }
}

}  // namespace gyrostat::rpc
