#include "stats/growth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/lcg.h"

namespace gyrostat::stats {
namespace {

std::vector<double> Steps(int n) {
  std::vector<double> steps;
  for (int i = 0; i < n; ++i) steps.push_back(i);
  return steps;
}

TEST(FitLine, FindsAnExactLine) {
  const std::vector<double> x = {0, 2, 3, 7}, y = {1, 5, 7, 15};
  const auto fit = FitLine(x, y);
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit->slope, 2, 1e-12);
  EXPECT_NEAR(fit->at_last, 15, 1e-12);
  EXPECT_NEAR(fit->slope_se, 0, 1e-7);
}

TEST(FitLine, HasNothingToSayAboutTooFewOrOnePlace) {
  EXPECT_FALSE(FitLine(Steps(3), Steps(3)));
  EXPECT_FALSE(FitLine(std::vector<double>(5, 1.0), Steps(5)));
  EXPECT_FALSE(FitLine(Steps(5), Steps(4)));
}

TEST(FitLine, AutocorrelatedResidualsWidenTheError) {
  testing::Lcg random(1);
  std::vector<double> white, red;
  double state = 0;
  for (int i = 0; i < 200; ++i) {
    const double noise = random.Normal();
    state = 0.8 * state + 0.6 * noise;  // Same variance as the noise.
    white.push_back(noise);
    red.push_back(state);
  }
  const auto narrow = FitLine(Steps(200), white), wide = FitLine(Steps(200), red);
  EXPECT_GT(wide->slope_se, 2 * narrow->slope_se);
}

TEST(FitGrowth, ForecastsAnExponential) {
  std::vector<double> logs;
  for (int i = 0; i < 64; ++i) logs.push_back(std::log(10) + 0.02 * i);
  const auto fit = FitGrowth(Steps(64), logs);
  ASSERT_TRUE(fit);
  EXPECT_TRUE(fit->exponential);
  EXPECT_TRUE(fit->Rising());
  const double now = 10 * std::exp(0.02 * 63);
  EXPECT_NEAR(*fit->StepsTo(100), std::log(100 / now) / 0.02, 1e-6);
  EXPECT_EQ(*fit->StepsTo(5), 0);
}

TEST(FitGrowth, PrefersTheLineWhereGrowthIsSteady) {
  std::vector<double> logs;
  for (int i = 0; i < 64; ++i) logs.push_back(std::log(10.0 + i));
  const auto fit = FitGrowth(Steps(64), logs);
  ASSERT_TRUE(fit);
  EXPECT_FALSE(fit->exponential);
  EXPECT_NEAR(*fit->StepsTo(100), 27, 1e-6);
}

TEST(FitGrowth, ReachesNothingWhileFalling) {
  std::vector<double> logs;
  for (int i = 0; i < 64; ++i) logs.push_back(3 - 0.01 * i);
  const auto fit = FitGrowth(Steps(64), logs);
  ASSERT_TRUE(fit);
  EXPECT_FALSE(fit->Rising());
  EXPECT_FALSE(fit->StepsTo(100));
}

TEST(FitGrowth, RefusesMorePointsThanItHolds) {
  EXPECT_FALSE(FitGrowth(Steps(300), std::vector<double>(300, 1.0)));
}

// 200 noisy exponentials: the forecast is right in the middle, and the early end is early in nearly all.
TEST(FitGrowth, ForecastIsUnbiasedAndItsEarlyEndCovers) {
  testing::Lcg random(2);
  std::vector<double> ratios;
  int early = 0;
  for (int run = 0; run < 200; ++run) {
    std::vector<double> logs;
    for (int i = 0; i < 64; ++i) logs.push_back(3 + 0.01 * i + 0.05 * random.Normal());
    const double truth = (std::log(100) - 3) / 0.01 - 63;
    const auto fit = FitGrowth(Steps(64), logs);
    ASSERT_TRUE(fit && fit->StepsTo(100) && fit->StepsToAtSoonest(100));
    if (!fit->exponential) continue;
    ratios.push_back(*fit->StepsTo(100) / truth);
    if (*fit->StepsToAtSoonest(100) <= truth) ++early;
  }
  ASSERT_GT(ratios.size(), 100u);
  std::sort(ratios.begin(), ratios.end());
  EXPECT_NEAR(ratios[ratios.size() / 2], 1, 0.1);
  EXPECT_GE(early, static_cast<int>(0.85 * static_cast<double>(ratios.size())));
}

TEST(FitGrowth, NoiseAloneSeldomRises) {
  testing::Lcg random(3);
  int rising = 0;
  for (int run = 0; run < 400; ++run) {
    std::vector<double> logs;
    for (int i = 0; i < 64; ++i) logs.push_back(3 + 0.1 * random.Normal());
    if (FitGrowth(Steps(64), logs)->Rising()) ++rising;
  }
  EXPECT_LE(rising, 40);  // One-sided 5 %, with room for the estimated autocorrelation.
}

}  // namespace
}  // namespace gyrostat::stats
