// A mutex that clang's thread-safety analysis understands. Fields name their lock with GYROSTAT_GUARDED_BY.
// (The plain macro names collide with abseil's, which gRPC headers bring in.)
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define GYROSTAT_TSA(x) __attribute__((x))
#else
#define GYROSTAT_TSA(x)
#endif
#define GYROSTAT_GUARDED_BY(m) GYROSTAT_TSA(guarded_by(m))
#define GYROSTAT_REQUIRES(...) GYROSTAT_TSA(requires_capability(__VA_ARGS__))
#define GYROSTAT_EXCLUDES(...) GYROSTAT_TSA(locks_excluded(__VA_ARGS__))

namespace gyrostat::base {

class GYROSTAT_TSA(capability("mutex")) Mutex {
 public:
  void lock() GYROSTAT_TSA(acquire_capability()) { mutex_.lock(); }
  void unlock() GYROSTAT_TSA(release_capability()) { mutex_.unlock(); }
  bool try_lock() GYROSTAT_TSA(try_acquire_capability(true)) { return mutex_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class GYROSTAT_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) GYROSTAT_TSA(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() GYROSTAT_TSA(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Wakes may be spurious: wait in a loop over the condition.
class CondVar {
 public:
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

  void Wait(Mutex& mutex) GYROSTAT_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }

  // Returns at `deadline` at the latest.
  template <class TimePoint>
  void WaitUntil(Mutex& mutex, TimePoint deadline) GYROSTAT_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait_until(lock, deadline);
    lock.release();
  }

 private:
  std::condition_variable cv_;
};

}  // namespace gyrostat::base
