// A clock that moves when the test says so. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace gyrostat::testing {

class ManualClock : public base::Clock {
 public:
  base::MonotonicTime Now() const override { return base::MonotonicTime(base::Milliseconds(now_ms_.load())); }
  int64_t UnixMs() const override { return kUnixStartMs + now_ms_.load(); }
  void Advance(base::Milliseconds by) { now_ms_ += by.count(); }

  static constexpr int64_t kUnixStartMs = 1'700'000'000'000;

 private:
  std::atomic<int64_t> now_ms_{0};
};

}  // namespace gyrostat::testing
