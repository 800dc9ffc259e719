#include "stats/climb.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/lcg.h"

namespace gyrostat::stats {
namespace {

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

// The definition, the slow way; differences are not winsorised here, so the series must be calm.
struct Slow {
  std::vector<double> values;
  double Level(size_t end) const { return MedianOf({values.begin() + (end - 8), values.begin() + end}); }
  double Deviations() const {
    double lowest = HUGE_VAL;  // Of levels that held for four values.
    for (size_t end = 11; end <= values.size(); ++end)
      lowest = std::min(lowest, std::max({Level(end), Level(end - 1), Level(end - 2), Level(end - 3)}));
    std::vector<double> differences, distances;
    for (size_t i = values.size() - 64; i < values.size(); ++i) differences.push_back(values[i] - values[i - 1]);
    const double middle = MedianOf(differences);
    for (const double d : differences) distances.push_back(std::fabs(d - middle));
    const double noise = 1.4826 * MedianOf(distances) / std::sqrt(2.0);
    return std::max(0.0, Level(values.size()) - lowest) / (1.2533 * noise / std::sqrt(8.0) * (7.1 / 6));
  }
};

TEST(Climb, IsTheDefinitionRestated) {
  Climb climb({.window = 8, .noise_window = 64});
  testing::Lcg random(3);
  Slow slow;
  for (int i = 0; i < 300; ++i) {
    // Uniform noise of +-1: no difference is far enough out to be pulled in.
    const double value = 10 - 0.01 * std::min(i, 150) + 0.02 * std::max(i - 150, 0) + random.Uniform();
    climb.Observe(value);
    slow.values.push_back(value);
    if (i < 100 || i % 7 != 0) continue;
    EXPECT_NEAR(climb.Deviations(), slow.Deviations(), 0.02 * slow.Deviations() + 1e-9) << i;
  }
  EXPECT_GT(climb.Deviations(), 8);
}

TEST(Climb, SaysNothingBeforeTheWindowIsFullOrTheNoiseIsKnown) {
  Climb climb({.window = 16, .noise_window = 64});
  for (int i = 0; i < 18; ++i) climb.Observe(i);  // A window is 16, and the lowest must hold for four.
  EXPECT_FALSE(climb.known());
  EXPECT_EQ(climb.excess(), 0);
  Climb brief({.window = 4, .noise_window = 64});
  for (int i = 0; i < 8; ++i) brief.Observe(i);  // Seven differences; the table begins at eight.
  EXPECT_TRUE(brief.known());
  EXPECT_GT(brief.excess(), 0);
  EXPECT_EQ(brief.Deviations(), 0);
}

TEST(Climb, AShortBurstMovesNothing) {
  for (const double bad : {1e6, 1e300, -1e300}) {
    Climb climb({.window = 32, .noise_window = 64});
    testing::Lcg random(8);
    for (int i = 0; i < 200; ++i) climb.Observe(i >= 150 && i < 160 ? bad : 2 + 0.02 * random.Normal());
    EXPECT_LT(climb.Deviations(), 7) << bad;  // A third of the window is gone to one side.
    EXPECT_NEAR(climb.lowest(), 2, 0.02) << bad;
    for (int i = 0; i < 40; ++i) climb.Observe(2.2 + 0.02 * random.Normal());
    EXPECT_GT(climb.Deviations(), 20) << bad;
  }
}

TEST(Climb, ALevelThatDidNotHoldIsNotTheLowest) {
  Climb climb({.window = 8, .noise_window = 64});
  testing::Lcg random(8);
  // Half of a window is bad, so its median is half-way down for two values.
  for (int i = 0; i < 100; ++i) {
    const bool bad = i == 50 || i == 52 || i == 54 || i == 56;
    climb.Observe(bad ? -1 : 2 + 0.02 * random.Normal());
  }
  EXPECT_NEAR(climb.lowest(), 2, 0.03);
}

TEST(Climb, ARippleOnAFlatSeriesIsHeldDownByTheShareOfNoise) {
  Climb bare({.window = 8, .noise_window = 64}), floored({.window = 8, .noise_window = 64, .noise_share = 0.01});
  for (int i = 0; i < 100; ++i) bare.Observe(3), floored.Observe(3);
  for (int i = 0; i < 8; ++i) bare.Observe(3.001), floored.Observe(3.001);
  EXPECT_TRUE(std::isinf(bare.Deviations()));
  EXPECT_LT(floored.Deviations(), 0.1);
}

TEST(Climb, SavedAndLoadedAtEachStepItIsTheSameBitForBit) {
  const ClimbOptions options{.window = 8, .noise_window = 32};
  Climb whole(options), broken(options);
  testing::Lcg random(5);
  for (int i = 0; i < 120; ++i) {
    base::ByteWriter out;
    base::SaveTo(&out, broken);
    broken = Climb(options);
    base::ByteReader in(out.bytes());
    ASSERT_TRUE(base::LoadFrom(&in, &broken));
    const double value = random.Normal() + (i == 60 ? 1e9 : 0);
    whole.Observe(value);
    broken.Observe(value);
    ASSERT_EQ(whole.Deviations(), broken.Deviations());
    ASSERT_EQ(whole.lowest(), broken.lowest());
  }
}

}  // namespace
}  // namespace gyrostat::stats
