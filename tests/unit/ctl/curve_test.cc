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
  for (const Curve::Bucket& each : curve.buckets()) {
    EXPECT_EQ(each.low == -5, each.low_at == 33333);
    EXPECT_EQ(each.high == 1000, each.high_at == 77777);
  }
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

TEST(AxisOf, TakesLogarithmsWhereALinearAxisWouldPressMostValuesFlat) {
  Curve early, even, crossing;
  for (int step = 0; step < 100; ++step) {
    early.Add(step, step < 3 ? 29 : 1.2 + 0.001 * step);
    even.Add(step, 1 + 0.28 * step);
    crossing.Add(step, step < 3 ? 29 : -0.5);
  }
  EXPECT_TRUE(AxisOf(early, ScaleKind::kByRange).logarithmic());
  EXPECT_FALSE(AxisOf(early, ScaleKind::kLinear).logarithmic());
  EXPECT_FALSE(AxisOf(even, ScaleKind::kByRange).logarithmic());
  EXPECT_FALSE(AxisOf(crossing, ScaleKind::kByRange).logarithmic());
  EXPECT_FALSE(AxisOf(Curve(), ScaleKind::kByRange).logarithmic());
}

TEST(LayerMap, KeepsTheLargestHeadOfEachLayer) {
  LayerMap map(Worst::kHighest, 8);
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

TEST(LayerMap, OfEntropiesTheLowestCounts) {
  LayerMap map(Worst::kLowest, 4);
  for (int step = 0; step < 64; ++step) {
    const float values[] = {3, step == 9 ? 0.01f : 2.0f, model::kAbsent, 4};
    map.Add(step, values, 2);
  }
  float least = 9;
  for (size_t c = 0; c < map.columns(); ++c) {
    least = std::min(least, map.At(c, 0));
    EXPECT_EQ(map.At(c, 1), 4);
  }
  EXPECT_EQ(least, 0.01f);
}

TEST(HeadMap, KeepsTheWorstOfEachHeadAndItsStep) {
  HeadMap map;
  for (int step = 0; step < 100; ++step) {
    const float values[] = {step == 61 ? 50.0f : 1.0f, 2, step >= 70 ? INFINITY : 3.0f, model::kAbsent};
    map.Add(step, values, 2);
  }
  EXPECT_EQ(map.layers(), 2u);
  EXPECT_EQ(map.heads(), 2u);
  EXPECT_EQ(map.At(0, 0).value, 50);
  EXPECT_EQ(map.At(0, 0).step, 61);
  EXPECT_EQ(map.At(0, 1).step, 0) << "the first of equals";
  EXPECT_TRUE(std::isnan(map.At(1, 0).value));
  EXPECT_EQ(map.At(1, 0).step, 70) << "since then";
  EXPECT_EQ(map.At(1, 1).value, model::kAbsent);
  const float other[] = {9, 9, 9, 9, 9, 9};
  map.Add(100, other, 2);
  EXPECT_EQ(map.At(0, 0).value, 50) << "another shape is another model";
}

TEST(Precedes, IsAStrictOrderWithNanFirstAndAbsentLast) {
  const float nan = NAN;
  EXPECT_TRUE(Precedes(Worst::kHighest, 2, 1));
  EXPECT_FALSE(Precedes(Worst::kHighest, 2, 2));
  EXPECT_TRUE(Precedes(Worst::kLowest, 1, 2));
  EXPECT_TRUE(Precedes(Worst::kLowest, nan, 2));
  EXPECT_FALSE(Precedes(Worst::kHighest, nan, nan));
  EXPECT_TRUE(Precedes(Worst::kLowest, 1, model::kAbsent));
  EXPECT_FALSE(Precedes(Worst::kLowest, model::kAbsent, 1));
}

}  // namespace
}  // namespace gyrostat::ctl
