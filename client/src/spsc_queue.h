// A queue between exactly two threads, the training thread and the sender, over slots that are built once.
//
// Neither side ever blocks, allocates or makes a system call: a producer reserves a slot, fills it in place and
// commits it; a consumer reads the front in place and releases it. What a slot owns (vectors, strings) is reused, or
// replaced by the side that may allocate.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gyrostat::client {

// Longer than any cache line we run on: the two indices must not share one, or each store would stall the other side.
inline constexpr size_t kCacheLine = 64;

template <class T>
class SpscQueue {
 public:
  // `capacity` >= 1 slots, value-initialised.
  explicit SpscQueue(size_t capacity) : slots_(capacity) {}
  SpscQueue(const SpscQueue&) = delete;
  SpscQueue& operator=(const SpscQueue&) = delete;

  size_t capacity() const { return slots_.size(); }
  // For setting the slots up before either side runs.
  T& slot(size_t i) { return slots_[i]; }

  // Producer. The next slot to fill, with whatever it held before, or null when the queue is full. Reserving again
  // before Commit gives the same slot. `ahead` skips slots that are filled and not yet committed.
  T* Reserve(size_t ahead = 0) {
    const uint64_t head = head_.load(std::memory_order_relaxed) + ahead;
    if (head - tail_.load(std::memory_order_acquire) >= slots_.size()) return nullptr;
    return &slots_[head % slots_.size()];
  }
  void Commit() { head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  // Producer. Slots that Reserve would still give; may only grow behind its back.
  size_t Room() const {
    return slots_.size() -
           static_cast<size_t>(head_.load(std::memory_order_relaxed) - tail_.load(std::memory_order_acquire));
  }
  // Producer. How many were ever committed.
  uint64_t Committed() const { return head_.load(std::memory_order_relaxed); }

  // Consumer. The oldest committed slot, or null. Stays valid and unchanged until Release.
  T* Front() {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (head_.load(std::memory_order_acquire) == tail) return nullptr;
    return &slots_[tail % slots_.size()];
  }
  void Release() { tail_.store(tail_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  // Consumer. How many were ever released.
  uint64_t Released() const { return tail_.load(std::memory_order_relaxed); }

 private:
  std::vector<T> slots_;
  alignas(kCacheLine) std::atomic<uint64_t> head_{0};
  alignas(kCacheLine) std::atomic<uint64_t> tail_{0};
};

}  // namespace gyrostat::client
