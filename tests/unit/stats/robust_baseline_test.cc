#include "stats/robust_baseline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/lcg.h"

namespace gyrostat::stats {
namespace {

RobustBaselineOptions Window(uint32_t window, double winsor_mads) {
  RobustBaselineOptions options;
  options.window = window;
  options.winsor_mads = winsor_mads;
  return options;
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

TEST(RobustBaseline, IsMedianAndMadOfTheLastValues) {
  testing::Lcg random(1);
  for (const uint32_t window : {4u, 7u, 32u}) {
    RobustBaseline baseline(Window(window, 0));
    std::vector<double> all;
    for (int i = 0; i < 300; ++i) {
      const double value = random.Below(20) * 0.5 - 3;  // Many equal values.
      baseline.Observe(value);
      all.push_back(value);
      std::vector<double> last(all.end() - std::min<std::ptrdiff_t>(window, std::ssize(all)), all.end());
      const double median = MedianOf(last);
      for (double& v : last) v = std::fabs(v - median);
      ASSERT_EQ(baseline.median(), median) << i;
      ASSERT_EQ(baseline.sigma(), 1.4826 * MedianOf(last)) << i;
    }
    EXPECT_EQ(baseline.count(), window);
  }
}

TEST(RobustBaseline, AHugeValueEntersNoFurtherThanItsReach) {
  RobustBaseline baseline(Window(64, 3));
  for (int i = 0; i < 64; ++i) baseline.Observe(i % 2 == 0 ? 1 : -1);
  const double sigma = baseline.sigma();
  for (int i = 0; i < 31; ++i) baseline.Observe(1e12);
  EXPECT_LE(baseline.sigma(), 4 * sigma);
  EXPECT_LE(std::fabs(baseline.median()), 1);
}

TEST(RobustBaseline, AFlatSeriesCanMoveAgain) {
  RobustBaseline baseline(Window(32, 3));
  for (int i = 0; i < 100; ++i) baseline.Observe(4);
  EXPECT_EQ(baseline.sigma(), 0);
  EXPECT_TRUE(std::isinf(baseline.Z(4.1)));
  for (int i = 0; i < 17; ++i) baseline.Observe(5);
  EXPECT_EQ(baseline.median(), 5);
}

TEST(RobustBaseline, NeverGoesBelowItsSmallestScale) {
  RobustBaselineOptions options = Window(32, 3);
  options.sigma_min = 0.5;
  RobustBaseline baseline(options);
  for (int i = 0; i < 32; ++i) baseline.Observe(2);
  EXPECT_EQ(baseline.Z(4), 4);
  EXPECT_EQ(baseline.Z(2), 0);
}

TEST(RobustBaseline, GoesOnBitForBitAfterSaveAndLoadAtAnyStep) {
  testing::Lcg random(2);
  std::vector<double> values;
  for (int i = 0; i < 150; ++i) values.push_back(random.Below(5) == 0 ? -0.0 : random.Normal());
  for (size_t cut = 0; cut <= values.size(); ++cut) {
    RobustBaseline whole(Window(40, 3)), second(Window(40, 3));
    for (size_t i = 0; i < cut; ++i) whole.Observe(values[i]);
    base::ByteWriter out;
    base::SaveTo(&out, whole);
    base::ByteReader in(out.bytes());
    ASSERT_TRUE(base::LoadFrom(&in, &second));
    for (size_t i = cut; i < values.size(); ++i) {
      whole.Observe(values[i]), second.Observe(values[i]);
      ASSERT_EQ(whole.median(), second.median());
      ASSERT_EQ(whole.sigma(), second.sigma());
    }
  }
}

TEST(RobustBaseline, RefusesStateThatCannotBe) {
  RobustBaseline large(Window(64, 3)), small(Window(32, 3));
  for (int i = 0; i < 64; ++i) large.Observe(i);
  base::ByteWriter out;
  base::SaveTo(&out, large);
  base::ByteReader in(out.bytes());
  EXPECT_FALSE(base::LoadFrom(&in, &small));
  small.Observe(1);
  EXPECT_EQ(small.median(), 1);
}

// Log-normal noise with bursts of 40 spikes of 8 times the level per 1000 steps. Mean and deviation absorb the burst
// and see a tenth of it; median and MAD of the logarithm see nearly all, without false alarms.
TEST(RobustBaseline, SeesThroughBurstsThatBlindMeanAndDeviation) {
  testing::Lcg random(5);
  RobustBaseline robust(Window(256, 3));
  std::vector<double> window;
  int spikes = 0, seen = 0, seen_by_mean = 0, false_alarms = 0, quiet = 0;
  for (int step = 0; step < 20000; ++step) {
    const bool spike = step >= 1000 && step % 1000 >= 500 && step % 1000 < 540;
    const double value = 0.2 * random.Normal() + (spike ? std::log(8.0) : 0);
    if (step >= 256) {
      double mean = 0, squares = 0;
      for (const double v : window) mean += v / 256;
      for (const double v : window) squares += (v - mean) * (v - mean) / 256;
      const bool alarm = robust.Z(value) > 6;
      (spike ? spikes : quiet)++;
      if (spike && alarm) ++seen;
      if (!spike && alarm) ++false_alarms;
      if (spike && value - mean > 6 * std::sqrt(squares)) ++seen_by_mean;
    }
    robust.Observe(value);
    window.push_back(value);
    if (window.size() > 256) window.erase(window.begin());
  }
  EXPECT_GE(seen, 0.85 * spikes);
  EXPECT_LE(seen_by_mean, 0.25 * spikes);
  EXPECT_EQ(false_alarms, 0) << quiet;
}

TEST(SmallSampleLimit, FollowsTheTableAndFallsTowardsTheGaussian) {
  EXPECT_TRUE(std::isinf(SmallSampleLimit(6, 7)));
  EXPECT_DOUBLE_EQ(SmallSampleLimit(6, 8), 41);
  EXPECT_DOUBLE_EQ(SmallSampleLimit(6, 32), 8.5);
  EXPECT_DOUBLE_EQ(SmallSampleLimit(6, 256), 6.2);
  EXPECT_DOUBLE_EQ(SmallSampleLimit(12, 32), 17);
  double last = SmallSampleLimit(6, 8);
  for (uint32_t n = 9; n < 3000; ++n) {
    const double limit = SmallSampleLimit(6, n);
    EXPECT_LE(limit, last) << n;
    EXPECT_GE(limit, 6) << n;
    last = limit;
  }
}

}  // namespace
}  // namespace gyrostat::stats
