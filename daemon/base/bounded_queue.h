// A bounded queue between threads that counts what it had to drop, each item exactly once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace gyrostat::base {

// Thread-safe. Many producers, one or more consumers. Never calls out while holding its lock.
template <class T>
class BoundedQueue {
 public:
  // At most `capacity` items wait; `capacity` >= 1.
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // Takes `item`, or returns false and counts one drop: the queue is full or closed. Never blocks on the consumer.
  bool TryPush(T item) GYROSTAT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (closed_ || items_.size() >= capacity_) {
        ++dropped_;
        return false;
      }
      items_.push_back(std::move(item));
    }
    not_empty_.NotifyOne();
    return true;
  }

  // Waits for room. False (and one drop) only once closed. For producers that may be slowed down.
  bool Push(T item) GYROSTAT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      while (!closed_ && items_.size() >= capacity_) not_full_.Wait(mutex_);
      if (closed_) {
        ++dropped_;
        return false;
      }
      items_.push_back(std::move(item));
    }
    not_empty_.NotifyOne();
    return true;
  }

  // Moves all waiting items to the end of `*out`, waiting until there is one, the queue is closed or `deadline` passed.
  // False once closed and empty.
  template <class TimePoint>
  bool PopAllUntil(TimePoint deadline, std::vector<T>* out) GYROSTAT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      while (items_.empty() && !closed_ && TimePoint::clock::now() < deadline)
        not_empty_.WaitUntil(mutex_, deadline);
      if (items_.empty()) return !closed_;
      for (T& item : items_) out->push_back(std::move(item));
      items_.clear();
    }
    not_full_.NotifyAll();
    return true;
  }

  // No more items are taken; those waiting can still be popped. Wakes everybody.
  void Close() GYROSTAT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    not_empty_.NotifyAll();
    not_full_.NotifyAll();
  }

  size_t size() const GYROSTAT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return items_.size();
  }
  uint64_t dropped() const GYROSTAT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return dropped_;
  }

 private:
  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar not_empty_, not_full_;
  std::deque<T> items_ GYROSTAT_GUARDED_BY(mutex_);
  bool closed_ GYROSTAT_GUARDED_BY(mutex_) = false;
  uint64_t dropped_ GYROSTAT_GUARDED_BY(mutex_) = 0;
};

}  // namespace gyrostat::base
