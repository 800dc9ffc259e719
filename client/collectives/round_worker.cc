#include "client/collectives/round_worker.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace gyrostat::collectives {
namespace {

struct Round {
  std::vector<float> lanes;
  enum { kIdle, kUnderWay, kOver } state = kIdle;
  std::string failed;  // Of this round: one that was over before another failed is good.
};

const char* Name(Reduction kind) { return kind == Reduction::kMax ? "a MAX" : "a SUM"; }

}  // namespace

// Outlives the worker where its thread hangs.
struct RoundWorker::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex, but for the lanes of a round under way.
  Round rounds[2];
  Reduction queue[2];  // At most one of each kind.
  size_t queued = 0;
  std::string failed;  // Why nothing runs any more.
  bool ending = false, ended = false;
  std::atomic<int> under_way = 0;  // Rounds; for those who must not take the mutex. Changed under it.

  void Run(const Reduce& reduce) {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return ending || queued > 0; });
      if (queued == 0) break;
      const Reduction kind = queue[0];
      queue[0] = queue[--queued];
      Round& round = rounds[static_cast<int>(kind)];
      if (failed.empty()) {
        lock.unlock();
        std::string why = reduce(kind, round.lanes.data(), round.lanes.size());
        lock.lock();
        failed = std::move(why);
      }
      round.failed = failed;
      round.state = Round::kOver;
      under_way.fetch_sub(1, std::memory_order_release);
      changed.notify_all();
    }
  }
};

std::unique_ptr<RoundWorker> RoundWorker::Start(Reduce reduce, std::string* error) {
  auto shared = std::make_shared<Shared>();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread([shared, reduce = std::move(reduce)]() mutable {
      shared->Run(reduce);
      reduce = nullptr;
      std::lock_guard lock(shared->mutex);
      shared->ended = true;
      shared->changed.notify_all();
    }).detach();
  } catch (const std::system_error& failure) {
    *error = std::string("no thread for the collective: ") + failure.what();
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started ? std::unique_ptr<RoundWorker>(new RoundWorker(std::move(shared))) : nullptr;
}

RoundWorker::~RoundWorker() { Finish(std::chrono::milliseconds(0)); }

bool RoundWorker::Begin(Reduction kind, const float* lanes, size_t count) {
  std::lock_guard lock(shared_->mutex);
  Round& round = shared_->rounds[static_cast<int>(kind)];
  if (round.state != Round::kIdle) {
    error_ = std::string(Name(kind)) + " was begun before the last one was waited for";
  } else if (shared_->ending) {
    error_ = "the collective is closed";
  } else if (!shared_->failed.empty()) {
    error_ = shared_->failed;
  } else {
    try {
      round.lanes.assign(lanes, lanes + count);
    } catch (const std::bad_alloc&) {
      error_ = "no memory for " + std::to_string(count) + " lanes";
      return false;
    }
    round.state = Round::kUnderWay;
    shared_->queue[shared_->queued++] = kind;
    shared_->under_way.fetch_add(1, std::memory_order_relaxed);
    shared_->changed.notify_all();
    return true;
  }
  return false;
}

bool RoundWorker::Wait(Reduction kind, float* lanes, size_t count) {
  std::unique_lock lock(shared_->mutex);
  Round& round = shared_->rounds[static_cast<int>(kind)];
  if (round.state == Round::kIdle) {
    error_ = std::string(Name(kind)) + " was waited for and not begun";
    return false;
  }
  shared_->changed.wait(lock, [&] { return round.state == Round::kOver; });
  round.state = Round::kIdle;
  if (!round.failed.empty()) {
    error_ = round.failed;
  } else if (round.lanes.size() != count) {
    error_ = std::string(Name(kind)) + " of " + std::to_string(round.lanes.size()) + " lanes was waited for with " +
             std::to_string(count);
  } else {
    std::copy(round.lanes.begin(), round.lanes.end(), lanes);
    return true;
  }
  return false;
}

bool RoundWorker::Done() const { return shared_->under_way.load(std::memory_order_acquire) == 0; }

bool RoundWorker::Finish(std::chrono::milliseconds budget) {
  std::unique_lock lock(shared_->mutex);
  shared_->ending = true;
  shared_->changed.notify_all();
  return shared_->changed.wait_for(lock, budget, [&] { return shared_->ended; });
}

}  // namespace gyrostat::collectives
