#include "remedy/ticks.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "support/lcg.h"

namespace gyrostat::remedy {
namespace {

// What the C library says, where long double has the digits to judge a double.
Ticks Reference(double x) {
  return static_cast<Ticks>(std::llroundl(std::log(static_cast<long double>(x)) * kTicksPerNat));
}

TEST(LnTicks, IsExactAtWellKnownPoints) {
  EXPECT_EQ(LnTicks(1), 0);
  EXPECT_EQ(LnTicks(10), kClipTicksMax);
  EXPECT_EQ(LnTicks(0.1), -kClipTicksMax);
  EXPECT_EQ(LnTicks(2), 726817);
  EXPECT_EQ(LnTicks(4), 1453635);
}

TEST(LnTicks, StaysWithinOneTickOverTheWholeRange) {
  testing::Lcg random(1);
  for (int i = 0; i < 20000; ++i) {
    const double x = std::exp(1400 * (random.Uniform() - 0.5));
    EXPECT_NEAR(static_cast<double>(LnTicks(x)), static_cast<double>(Reference(x)), 1) << x;
  }
  for (const double x :
       {DBL_MIN, DBL_MAX, DBL_TRUE_MIN, DBL_MIN / 3, std::nextafter(1.0, 2.0), std::nextafter(1.0, 0.0)})
    EXPECT_NEAR(static_cast<double>(LnTicks(x)), static_cast<double>(Reference(x)), 1) << x;
}

TEST(LnTicks, NeverFallsWhereItsArgumentRises) {
  double x = 0.9;
  for (Ticks last = LnTicks(x); x < 1.1; x *= 1 + 1e-5) {
    const Ticks now = LnTicks(x);
    EXPECT_GE(now, last) << x;
    last = now;
  }
}

TEST(LnTicks, SaysZeroForWhatHasNoLogarithm) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const double x : {0.0, -0.0, -1.0, -DBL_TRUE_MIN, nan, -nan, infinity, -infinity}) EXPECT_EQ(LnTicks(x), 0) << x;
}

TEST(ExpMinus, IsWithinItsBoundOverTheWholeRange) {
  testing::Lcg random(2);
  for (int i = 0; i < 20000; ++i) {
    const auto ticks = static_cast<Ticks>(random.Below(static_cast<uint32_t>(700 * kTicksPerNat)));
    const long double exact = std::exp(-static_cast<long double>(ticks) / kTicksPerNat);
    EXPECT_LE(std::fabs(ExpMinus(ticks) - exact), exact * 0x1p-50L) << ticks;
  }
}

TEST(ExpMinus, GoesThroughTheSubnormalsToZero) {
  for (Ticks nats = 700; nats <= 745; ++nats) {
    const long double exact = std::exp(-static_cast<long double>(nats));
    EXPECT_LE(std::fabs(ExpMinus(nats * kTicksPerNat) - exact), std::max(exact * 0x1p-50L, 0x1p-1074L)) << nats;
    EXPECT_GT(ExpMinus(nats * kTicksPerNat), 0) << nats;
  }
  EXPECT_EQ(ExpMinus(746 * kTicksPerNat), 0);
  EXPECT_EQ(ExpMinus(std::numeric_limits<Ticks>::max()), 0);
}

TEST(ExpMinus, NeverRisesAndNeverLeavesTheUnitInterval) {
  double last = 1;
  for (Ticks ticks = 0; ticks < 800 * kTicksPerNat; ticks += 1 + ticks / 64) {
    const double now = ExpMinus(ticks);
    EXPECT_LE(now, last) << ticks;
    EXPECT_GE(now, 0) << ticks;
    last = now;
  }
  EXPECT_EQ(ExpMinus(0), 1);
  EXPECT_EQ(ExpMinus(-1), 1);
  EXPECT_EQ(ExpMinus(std::numeric_limits<Ticks>::min()), 1);
}

// The same bits on every machine: any change of these is a change of the protocol.
TEST(Ticks, AreTheSameBitsEverywhere) {
  EXPECT_EQ(ExpMinus(1), 0x1.ffffe00001000p-1);
  EXPECT_EQ(ExpMinus(726817), 0x1.000007f7d1ef4p-1);
  EXPECT_EQ(ExpMinus(kTicksPerNat), 0x1.78b56362cef38p-2);
  EXPECT_EQ(ExpMinus(kClipTicksMax), 0x1.9999a58aaaca7p-4);
  EXPECT_EQ(ExpMinus(700 * kTicksPerNat), 0x1.14f2b0fb9307fp-1010);
  EXPECT_EQ(LnTicks(1.0000005), 1);
  EXPECT_EQ(LnTicks(1.5), 425161);
  EXPECT_EQ(LnTicks(200.0 / 30), 1989274);
}

TEST(Ticks, SumsOfManyTinyClipsStayExact) {
  // 220,000 clips of 0.1 %: a float sum of logarithms is off by half a nat after these, ticks are not.
  const Ticks one = LnTicks(1 / 0.999);
  Ticks sum = 0;
  for (int i = 0; i < 220000; ++i) sum += one;
  EXPECT_EQ(sum, 220000 * one);
  EXPECT_NEAR(static_cast<double>(sum) / kTicksPerNat, -220000 * std::log(0.999), 0.12);
}

}  // namespace
}  // namespace gyrostat::remedy
