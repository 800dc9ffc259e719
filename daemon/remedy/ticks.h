// Fixed-point logarithms for the clip ledger (protocol.md §1): a tick is 2^-20 nat. Integers because sums must be exact
// and equal on every rank; our own exp and log (no libm, no contraction) because libm differs between machines.
//
// Pure; thread-safe; no allocation.
#pragma once

#include <cstdint>

namespace gyrostat::remedy {

using Ticks = int64_t;
inline constexpr Ticks kTicksPerNat = Ticks{1} << 20;

// ln(10) in ticks: the most that one order may ask of a head.
inline constexpr Ticks kClipTicksMax = 2414435;

// round(ln(x) * 2^20) for finite x > 0; same bits everywhere; error at most one tick. 0 for any other x.
Ticks LnTicks(double x);

// exp(-ticks / 2^20) as a double with relative error below 2^-50 (below 2^-1022 the spacing of the subnormals rules);
// same bits everywhere. 0 < result <= 1 for ticks >= 0 (0 only by underflow, beyond 745 nats). Negative ticks count as
// 0: a factor never enlarges.
double ExpMinus(Ticks ticks);

}  // namespace gyrostat::remedy
