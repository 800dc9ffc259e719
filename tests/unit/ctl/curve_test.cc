#include "ctl/curve.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/signal.h"

namespace gyrostat::ctl {
namespace {

TEST(Curve, LosesNoExtremeHoweverLongItGets) {
  Curve curve(64);
  for (int step = 0; step < 100000; ++step)
    curve.Add(step, step == 77777 ? 1000 : step == 33333 ? -5 : step == 50000 ? NAN : 1);
  EXPECT_LE(curve.buckets().size(), 64u);
  EXPECT_GE(curve.buckets().size(), 32u);
  double low = INFINITY, high = -INFINITY;
  uint64_t values = 0, nonfinite = 0;
  model::Step next = 0;
  for (const Curve::Bucket& each : curve.buckets()) {
    EXPECT_EQ(each.first, next);
    next = each.last + 1;
    low = std::min(low, each.low);
    high = std::max(high, each.high);
    values += each.values;
    nonfinite += each.nonfinite;
  }
  EXPECT_EQ(next, 100000);
  EXPECT_EQ(low, -5);
  EXPECT_EQ(high, 1000);
  EXPECT_EQ(values, 100000u);
  EXPECT_EQ(nonfinite, 1u);
}

TEST(Curve, ABucketWithANonFiniteValueShowsIt) {
  Curve curve;
  curve.Add(1, 2.5);
  curve.Add(2, INFINITY);
  const std::vector<double> highs = curve.Highs();
  ASSERT_EQ(highs.size(), 2u);
  EXPECT_EQ(highs[0], 2.5);
  EXPECT_TRUE(std::isnan(highs[1]));
  EXPECT_EQ(curve.first_value(), 2.5);
  EXPECT_EQ(curve.last_value(), INFINITY);
}

TEST(LayerMap, KeepsTheLargestHeadOfEachLayer) {
  LayerMap map(8);
  for (int step = 0; step < 100; ++step) {
    const float spike = step == 61 ? 50.0f : 1.0f;
    const float values[] = {1, 2, spike, model::kAbsent};
    map.Add(step, values, 2);
  }
  EXPECT_LE(map.columns(), 8u);
  EXPECT_EQ(map.layers(), 2u);
  float most = 0;
  for (size_t c = 0; c < map.columns(); ++c) {
    EXPECT_EQ(map.At(c, 0), 2);
    most = std::max(most, map.At(c, 1));
  }
  EXPECT_EQ(most, 50);
}

TEST(LayerMap, NanShowsAndOtherShapesAreLeftOut) {
  LayerMap map;
  const float good[] = {1, NAN}, other[] = {1, 2, 3}, absent[] = {model::kAbsent, 2};
  map.Add(0, good, 2);
  map.Add(1, other, 3);
  map.Add(2, absent, 2);
  EXPECT_EQ(map.columns(), 2u);
  EXPECT_TRUE(std::isnan(map.At(0, 1)));
  EXPECT_EQ(map.At(1, 0), model::kAbsent);
}

}  // namespace
}  // namespace gyrostat::ctl
