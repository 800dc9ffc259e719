// One pass over an array of a report, written so that the compiler makes vector code of it: no branches, integer tests.
//
// Pure; thread-safe; nothing allocates.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "model/signal.h"

namespace gyrostat::detect {

// NaN and the infinities have all exponent bits set.
inline constexpr uint32_t kExponentBits = 0x7f800000u;
inline bool IsFinite(float v) { return (std::bit_cast<uint32_t>(v) & kExponentBits) != kExponentBits; }

// The value, or model::kAbsent (below every measured value) where it is not finite.
inline float FiniteOrAbsent(float v) { return IsFinite(v) ? v : model::kAbsent; }

// The largest finite value; model::kAbsent where there is none.
float MaxFinite(std::span<const float> values);

// How many are NaN, and how many are +Inf or -Inf.
struct Nonfinite {
  uint32_t nan = 0, plus_inf = 0, minus_inf = 0;
};
Nonfinite CountNonfinite(std::span<const float> values);

// The first index that holds exactly `value`; values.size() where none does.
size_t IndexOf(std::span<const float> values, float value);

}  // namespace gyrostat::detect
