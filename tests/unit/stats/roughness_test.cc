#include "stats/roughness.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/lcg.h"

namespace gyrostat::stats {
namespace {

TEST(Roughness, IsTheDeviationOfIndependentLogarithms) {
  testing::Lcg random(1);
  Roughness roughness(4096);
  for (int i = 0; i < 4100; ++i) roughness.Observe(std::exp(0.001 * i + 0.3 * random.Normal()));
  EXPECT_NEAR(roughness.Over(4096), 0.3, 0.02);
}

TEST(Roughness, IsZeroUntilTheWindowIsFull) {
  Roughness roughness(40);
  for (int i = 0; i < 16; ++i) roughness.Observe(1 + i % 2);
  EXPECT_EQ(roughness.Over(16), 0);
  roughness.Observe(1);
  EXPECT_GT(roughness.Over(16), 0.3);
  EXPECT_EQ(roughness.Over(17), 0);
}

TEST(Roughness, TwoSingleOutliersAreNone) {
  testing::Lcg random(2);
  Roughness calm(40), hit(40);
  for (int i = 0; i < 41; ++i) {
    const double value = std::exp(0.1 * random.Normal());
    calm.Observe(value);
    hit.Observe(i == 10 || i == 30 ? 1e6 : value);
  }
  EXPECT_NEAR(hit.Over(40), calm.Over(40), 0.04);
}

TEST(Roughness, AHoleIsSpannedByNoDifference) {
  for (const double hole : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    Roughness roughness(40);
    for (int i = 0; i < 120; ++i) roughness.Observe(i % 3 == 2 ? hole : std::exp(i / 3 % 2));
    EXPECT_EQ(roughness.Over(16), 0);  // Of pairs of equal values; from pair to pair they differ.
  }
}

TEST(Roughness, AGapIsSpannedByNone) {
  Roughness roughness(40);
  for (int i = 0; i < 120; ++i) {
    if (i % 4 == 0) roughness.Gap();
    roughness.Observe(std::exp(i / 4 % 2));
  }
  EXPECT_EQ(roughness.Over(40), 0);
}

TEST(Roughness, TheNewestCountAlsoWhenTheRingHasWrapped) {
  Roughness roughness(20);
  for (int i = 0; i < 90; ++i) roughness.Observe(i < 73 ? std::exp(i % 2) : 1);
  EXPECT_EQ(roughness.Over(16), 0);
  EXPECT_GT(roughness.Over(20), 0);
}

}  // namespace
}  // namespace gyrostat::stats
