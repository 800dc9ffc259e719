// What gyro_stats tells, kept where any thread may read it. Each number has one writer, so a plain load and store
// suffice: no locked instruction on the training thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "gyrostat/gyrostat.h"

namespace gyrostat::client {

// One writer, any number of readers.
class Tally {
 public:
  void Add(uint64_t n = 1) { value_.store(value() + n, std::memory_order_relaxed); }
  void Set(uint64_t n) { value_.store(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// The newest trouble in words: one writer, any number of readers, no lock (a sequence lock over atomic words, so that a
// reader never sees two texts mixed and ThreadSanitizer agrees).
class ErrorCell {
 public:
  // Cut to GYRO_REASON_BYTES - 1. Does not allocate.
  void Set(std::string_view text) {
    char padded[GYRO_REASON_BYTES] = {};
    std::memcpy(padded, text.data(), text.size() < sizeof(padded) ? text.size() : sizeof(padded) - 1);
    const uint64_t sequence = sequence_.load(std::memory_order_relaxed);
    sequence_.store(sequence + 1, std::memory_order_relaxed);
    for (size_t i = 0; i < kWords; ++i) {
      uint64_t word;
      std::memcpy(&word, padded + 8 * i, 8);
      words_[i].store(word, std::memory_order_release);  // Who sees it sees the odd sequence too.
    }
    sequence_.store(sequence + 2, std::memory_order_release);
    set_at_.store(clock_.fetch_add(1, std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // Copies the text into `out`; false when it changed too often to be read (then `out` is unspecified).
  bool Get(char (&out)[GYRO_REASON_BYTES]) const {
    for (int attempt = 0; attempt < 16; ++attempt) {
      const uint64_t before = sequence_.load(std::memory_order_acquire);
      for (size_t i = 0; i < kWords; ++i) {
        const uint64_t word = words_[i].load(std::memory_order_acquire);
        std::memcpy(out + 8 * i, &word, 8);
      }
      if (before % 2 == 0 && sequence_.load(std::memory_order_relaxed) == before) return true;
    }
    return false;
  }
  // Whether this text is newer than the other's.
  bool NewerThan(const ErrorCell& other) const {
    return set_at_.load(std::memory_order_relaxed) > other.set_at_.load(std::memory_order_relaxed);
  }

 private:
  static inline std::atomic<uint64_t> clock_{0};  // Counts all texts ever set, to tell which came last.
  static constexpr size_t kWords = GYRO_REASON_BYTES / 8;
  std::atomic<uint64_t> sequence_{0};
  std::atomic<uint64_t> words_[kWords] = {};
  std::atomic<uint64_t> set_at_{0};
};

// Written by the training thread.
struct TrainingCounters {
  Tally reports, dropped_hot, invalid, boundary, epoch, ledger_version, orders_applied, orders_refused;
  ErrorCell error;
};

// Written by the sender thread.
struct SenderCounters {
  Tally connected, acked, dropped_unacked, reconnects, orders_received, orders_refused;
  ErrorCell error;
};

struct Counters {
  alignas(64) TrainingCounters training;
  alignas(64) SenderCounters sender;
};

}  // namespace gyrostat::client
