// Time as an argument. The only place, with clock.cc, that asks the system what time it is.
#pragma once

#include <chrono>
#include <cstdint>

namespace gyrostat::base {

using Milliseconds = std::chrono::milliseconds;

// A point on the monotonic clock, since an arbitrary origin. Survives no restart.
using MonotonicTime = std::chrono::steady_clock::time_point;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonotonicTime Now() const = 0;
  // Milliseconds since the Unix epoch. May jump; for people and records only, never for decisions.
  virtual int64_t UnixMs() const = 0;
};

// The system's clocks; lives for ever.
const Clock& SystemClock();

}  // namespace gyrostat::base
