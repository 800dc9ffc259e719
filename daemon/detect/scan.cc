#include "detect/scan.h"

#include <algorithm>
#include <cstdint>

// These loops see every value of every report: where the processor has AVX2 they use it, chosen when the program
// starts. Not under a sanitizer, whose run-time is not ready that early.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define GYROSTAT_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define GYROSTAT_WIDE
#endif

namespace gyrostat::detect {
namespace {

constexpr size_t kBlock = 256;  // Values that are looked at before anything is decided.

// Integers in the order of the floats they came from: comparing those needs no care about NaN, so that the compiler may
// keep several running maxima at once. Its own inverse, with the bits reinterpreted.
constexpr int32_t Ordered(int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

}  // namespace

GYROSTAT_WIDE float MaxFinite(std::span<const float> values) {
  constexpr int32_t kNone = Ordered(std::bit_cast<int32_t>(model::kAbsent));
  constexpr auto kExponent = static_cast<int32_t>(kExponentBits);
  const float* const value = values.data();
  const size_t size = values.size();
  int32_t best = kNone;
  for (size_t i = 0; i < size; ++i) {
    const auto bits = std::bit_cast<int32_t>(value[i]);
    const int32_t bad = (bits & kExponent) == kExponent ? -1 : 0;
    const int32_t ordered = (Ordered(bits) & ~bad) | (kNone & bad);
    best = best > ordered ? best : ordered;
  }
  return std::bit_cast<float>(Ordered(best));
}

GYROSTAT_WIDE Nonfinite CountNonfinite(std::span<const float> values) {
  constexpr uint32_t kPlusInf = kExponentBits, kMinusInf = kExponentBits | 0x80000000u;
  const float* const value = values.data();
  const size_t size = values.size();
  uint32_t all = 0, plus = 0, minus = 0;
  for (size_t begin = 0; begin < size; begin += kBlock) {
    const size_t end = std::min(size, begin + kBlock);
    uint32_t any = 0;
    for (size_t i = begin; i < end; ++i)
      any |= static_cast<uint32_t>((std::bit_cast<uint32_t>(value[i]) & kExponentBits) == kExponentBits);
    if (any == 0) continue;  // As nearly always.
    for (size_t i = begin; i < end; ++i) {
      const auto bits = std::bit_cast<uint32_t>(value[i]);
      all += static_cast<uint32_t>((bits & kExponentBits) == kExponentBits);
      plus += static_cast<uint32_t>(bits == kPlusInf);
      minus += static_cast<uint32_t>(bits == kMinusInf);
    }
  }
  return {all - plus - minus, plus, minus};
}

// Block by block, since a search that may stop at any value is no vector code.
GYROSTAT_WIDE size_t IndexOf(std::span<const float> values, float value) {
  const float* const all = values.data();
  size_t begin = 0;
  for (; begin + kBlock <= values.size(); begin += kBlock) {
    int32_t found = 0;
    for (size_t i = begin; i < begin + kBlock; ++i) found |= all[i] == value ? 1 : 0;
    if (found != 0) break;
  }
  return static_cast<size_t>(std::find(all + begin, all + values.size(), value) - all);
}

}  // namespace gyrostat::detect
