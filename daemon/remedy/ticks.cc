#include "remedy/ticks.h"

#include <algorithm>
#include <bit>

// Both functions work on integers alone: there is nothing that a compiler could contract, a rounding mode could bend or
// a flush-to-zero flag (which training processes do set) could cut off.

namespace gyrostat::remedy {
namespace {

__extension__ typedef unsigned __int128 Wide;
__extension__ typedef __int128 SignedWide;

constexpr uint64_t kLn2 = 0xB17217F7D1CF79AC;  // ln(2) * 2^64, rounded.
constexpr int kMantissaBits = 52;
constexpr int kBias = 1023;
constexpr int kExponentMin = -1022;  // Of normal doubles.

// Binary digits of log2 that are computed: 2^-44 of an octave is 2^-24 of a tick.
constexpr int kLogDigits = 44;

// Terms of exp's series: ln(2)^20 / 20! is below 2^-64.
constexpr uint64_t kExpTerms = 20;

// mantissa * 2^(exponent - 63) as a double, rounded to nearest; `mantissa` > 0.
double Assemble(uint64_t mantissa, int exponent) {
  const int top = 63 - std::countl_zero(mantissa);
  exponent += top - 63;  // Of the leading bit.
  const int shift = top - kMantissaBits + std::max(0, kExponentMin - exponent);
  if (shift > 63) return 0;
  const uint64_t rounded = ((mantissa >> (shift - 1)) + 1) >> 1;
  // A carry out of the mantissa runs into the exponent field, where it belongs.
  if (exponent < kExponentMin) return std::bit_cast<double>(rounded);
  const uint64_t biased = static_cast<uint64_t>(exponent + kBias);
  return std::bit_cast<double>((biased << kMantissaBits) + (rounded - (uint64_t{1} << kMantissaBits)));
}

}  // namespace

Ticks LnTicks(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const uint64_t mantissa = bits & ((uint64_t{1} << kMantissaBits) - 1);
  const int field = static_cast<int>(bits >> kMantissaBits);  // With the sign bit, hence above 2046 for x < 0 too.
  if (field >= 2047 || bits == 0) return 0;

  // x = m * 2^exponent with m in [1, 2), held as m * 2^63.
  uint64_t m = field == 0 ? mantissa : mantissa | uint64_t{1} << kMantissaBits;
  const int zeros = std::countl_zero(m);
  m <<= zeros;
  const int64_t exponent = std::max(field, 1) - kBias - (zeros - 11);

  // Squaring doubles log2(m): each time m reaches 2, the next binary digit is one.
  uint64_t digits = 0;
  for (int i = 0; i < kLogDigits; ++i) {
    const Wide square = static_cast<Wide>(m) * m >> 63;
    const bool one = square >> 64 != 0;
    m = static_cast<uint64_t>(one ? square >> 1 : square);
    digits = digits << 1 | static_cast<uint64_t>(one);
  }
  const int64_t log2 = exponent * (int64_t{1} << kLogDigits) + static_cast<int64_t>(digits);
  constexpr int kDown = kLogDigits + 64 - 20;
  return static_cast<Ticks>((static_cast<SignedWide>(log2) * kLn2 + (static_cast<SignedWide>(1) << (kDown - 1))) >>
                            kDown);
}

double ExpMinus(Ticks ticks) {
  if (ticks <= 0) return 1;
  if (ticks > 746 * kTicksPerNat) return 0;
  // ticks = k octaves and a rest below ln(2), all times 2^64.
  const Wide nats = static_cast<Wide>(ticks) << 44;
  const auto octaves = static_cast<int>(nats / kLn2);
  const auto rest = static_cast<uint64_t>(nats - static_cast<Wide>(octaves) * kLn2);
  // exp(-r) = 1 - r/1 (1 - r/2 (1 - r/3 (...))), times 2^63.
  constexpr uint64_t kOne = uint64_t{1} << 63;
  uint64_t value = kOne;
  for (uint64_t n = kExpTerms; n >= 1; --n)
    value = kOne - static_cast<uint64_t>(static_cast<Wide>(rest) * value >> 64) / n;
  return Assemble(value, -octaves);
}

}  // namespace gyrostat::remedy
