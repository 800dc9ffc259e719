#include "client/cuda/arithmetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/cuda_reference.h"

namespace gyrostat::cuda {
namespace {

// From the format's definition: sign, exponent with its bias, fraction.
double ValueOf(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

template <typename T>
void EveryPatternIsRead(int exponent_bits, int fraction_bits) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double wanted = ValueOf(static_cast<uint16_t>(bits), exponent_bits, fraction_bits);
    const float read = ToFloat(T{static_cast<uint16_t>(bits)});
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(read)) << bits;
      ASSERT_TRUE(std::isnan(ToFloat(FromFloat<T>(read)))) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(read), wanted) << bits;
      ASSERT_EQ(std::signbit(read), std::signbit(wanted));
      ASSERT_EQ(FromFloat<T>(read).bits, bits);
    }
  }
}

TEST(CudaArithmetic, EveryPatternOf16BitsIsReadAndWrittenBack) {
  EveryPatternIsRead<Bf16>(8, 7);
  EveryPatternIsRead<Half>(5, 10);
}

// Between two neighbours: below, at and above the middle.
template <typename T>
void RoundsToNearestEven(uint16_t largest) {
  for (uint16_t bits = 0; bits < largest; ++bits) {
    const float low = ToFloat(T{bits}), high = ToFloat(T{static_cast<uint16_t>(bits + 1)});
    const float middle = static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
    if (static_cast<double>(middle) * 2 != static_cast<double>(low) + static_cast<double>(high)) continue;
    const auto even = static_cast<uint16_t>(bits % 2 == 0 ? bits : bits + 1);
    for (const float sign : {1.0f, -1.0f}) {
      const uint16_t top = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(FromFloat<T>(sign * middle).bits, top | even) << bits;
      ASSERT_EQ(FromFloat<T>(sign * std::nextafter(middle, high)).bits, top | (bits + 1)) << bits;
      ASSERT_EQ(FromFloat<T>(sign * std::nextafter(middle, low)).bits, top | bits) << bits;
    }
  }
}

TEST(CudaArithmetic, RoundsToNearestAndTiesToEven) {
  RoundsToNearestEven<Half>(0x7bff);
  RoundsToNearestEven<Bf16>(0x7f7f);
  EXPECT_EQ(FromFloat<Half>(65519).bits, 0x7bff);
  EXPECT_EQ(FromFloat<Half>(65520).bits, 0x7c00);
  EXPECT_EQ(FromFloat<Half>(-INFINITY).bits, 0xfc00);
  EXPECT_EQ(FromFloat<Bf16>(FLT_MAX).bits, 0x7f80);
}

TEST(CudaArithmetic, SquaresNeitherOverflowNorVanish) {
  for (const float size : {1e-40f, 1e-30f, 1e-12f, 1.0f, 1e18f, 3e25f, 3e38f}) {
    Moments moments = {};
    const float values[8] = {size, -size, 0, size / 2, NAN, INFINITY, -INFINITY, size};
    moments.Add(values);
    ReferenceMoments wanted;
    wanted.Add(std::vector<float>(std::begin(values), std::end(values)));
    EXPECT_EQ(moments.nonfinite, 3u);
    EXPECT_EQ(moments.count, 5u);
    EXPECT_EQ(moments.abs_max, size);
    EXPECT_NEAR(moments.sum_squares / static_cast<double>(wanted.sum_squares), 1, 1e-6) << size;
  }
}

TEST(CudaArithmetic, AQuerySeesTheKeysUpToItsOwnFromTheEnd) {
  const Sight all = {5, 7, 0}, same = {5, 5, 1}, more = {5, 7, 1}, fewer = {5, 3, 1};
  EXPECT_EQ(all.Keys(0), 7);
  EXPECT_EQ(all.Keys(5), 0);  // There is no such query.
  EXPECT_EQ(same.Keys(0), 1);
  EXPECT_EQ(more.Keys(0), 3);
  EXPECT_EQ(more.Keys(4), 7);
  EXPECT_EQ(fewer.Keys(1), 0);
  EXPECT_EQ(fewer.Keys(2), 1);
  EXPECT_TRUE(more.Whole(2, 3, 0, 5));
  EXPECT_FALSE(more.Whole(1, 3, 0, 5));
  EXPECT_FALSE(more.Whole(3, 3, 0, 1));
}

}  // namespace
}  // namespace gyrostat::cuda
