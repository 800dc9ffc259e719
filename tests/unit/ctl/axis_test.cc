#include "ctl/axis.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

namespace gyrostat::ctl {
namespace {

std::vector<std::string> Labels(const std::vector<Tick>& ticks) {
  std::vector<std::string> labels;
  for (const Tick& each : ticks) labels.push_back(each.label);
  return labels;
}

Extent Of(std::initializer_list<double> values) {
  Extent extent;
  for (const double each : values) extent.Add(each);
  return extent;
}

using Words = std::vector<std::string>;

TEST(ValueAxis, RoundedEndsAtItsTicks) {
  const ValueAxis axis = ValueAxis(Of({2.116, 5.62}), ScaleKind::kByRange).Rounded();
  EXPECT_FALSE(axis.logarithmic());
  EXPECT_EQ(Labels(axis.Ticks(6)), (Words{"2", "3", "4", "5", "6"}));
  EXPECT_EQ(axis.Ticks(6).front().share, 0);
  EXPECT_EQ(axis.Ticks(6).back().share, 1);
}

TEST(ValueAxis, TakesLogarithmsWhereValuesSpanALot) {
  EXPECT_TRUE(ValueAxis(Of({1, 31}), ScaleKind::kByRange).logarithmic());
  EXPECT_FALSE(ValueAxis(Of({1, 30}), ScaleKind::kByRange).logarithmic());
  EXPECT_FALSE(ValueAxis(Of({0, 1000}), ScaleKind::kByRange).logarithmic());
  const ValueAxis wide(Of({0.5, 2e6}), ScaleKind::kByRange);
  EXPECT_EQ(Labels(wide.Ticks(4)), (Words{"1", "100", "10000", "1e6"}));
  EXPECT_EQ(Labels(ValueAxis(Of({0.4, 4.3}), ScaleKind::kLogarithmic).Ticks(4)), (Words{"0.5", "1", "2"}));
}

TEST(ValueAxis, AShortLogAxisEndsAtItsTicksToo) {
  const ValueAxis axis = ValueAxis(Of({1.01, 1.99}), ScaleKind::kLogarithmic).Rounded();
  EXPECT_EQ(Labels(axis.Ticks(3)), (Words{"1", "1.5", "2"}));
  EXPECT_EQ(Labels(ValueAxis(Of({0.4, 4.3}), ScaleKind::kLogarithmic).Rounded().Ticks(4)),
            (Words{"0.2", "0.5", "1", "2", "5"}));
}

TEST(ValueAxis, ALogAxisPutsWhatIsNotPositiveAtItsFoot) {
  const ValueAxis axis(Of({0, 0.1, 10}), ScaleKind::kLogarithmic);
  EXPECT_TRUE(axis.logarithmic());
  EXPECT_EQ(axis.low(), 0.1);
  EXPECT_EQ(axis.Share(0), 0);
  EXPECT_EQ(axis.Share(-5), 0);
  EXPECT_NEAR(axis.Share(1), 0.5, 1e-12);
  EXPECT_FALSE(ValueAxis(Of({-1, 0}), ScaleKind::kLogarithmic).logarithmic()) << "nothing is positive";
}

TEST(ValueAxis, StaysFiniteWhateverTheValues) {
  for (const Extent& extent : {Of({}), Of({0}), Of({5}), Of({-DBL_MAX, DBL_MAX}), Of({DBL_MIN, DBL_MAX}),
                               Of({5e-324, 1e-323}), Of({1, std::nextafter(1.0, 2.0)}), Of({NAN, INFINITY, 2})})
    for (const ScaleKind kind : {ScaleKind::kLinear, ScaleKind::kLogarithmic, ScaleKind::kByRange})
      for (const ValueAxis& axis : {ValueAxis(extent, kind), ValueAxis(extent, kind).Rounded()}) {
        EXPECT_LE(axis.Ticks(5).size(), 40u);
        for (const double value : {extent.low, extent.high, 0.0, -1.0, 1.0, DBL_MAX}) {
          const double share = axis.Share(value);
          EXPECT_TRUE(share >= 0 && share <= 1) << value;
        }
        for (const Tick& each : axis.Ticks(5)) EXPECT_TRUE(each.share >= 0 && each.share <= 1) << each.label;
      }
}

TEST(StepAxis, TicksStandAtRoundSteps) {
  EXPECT_EQ(StepAxis(0, 399).TickSteps(6), (std::vector<model::Step>{0, 100, 200, 300}));
  EXPECT_EQ(StepAxis(1, 3).TickSteps(6), (std::vector<model::Step>{1, 2, 3})) << "there is no step 1.5";
  EXPECT_EQ(StepAxis(7, 7).TickSteps(6), (std::vector<model::Step>{7}));
  EXPECT_EQ(Labels(StepAxis(0, 40000).Ticks(4)), (Words{"0", "10k", "20k", "30k", "40k"}));
  const model::Step least = std::numeric_limits<model::Step>::min(), most = std::numeric_limits<model::Step>::max();
  EXPECT_EQ(StepAxis(least, most).Share(0), 0.5);
  EXPECT_EQ(StepAxis(10, 20).Share(5), 0);
}

TEST(StepLabel, IsShortOnlyWhereItIsExact) {
  EXPECT_EQ(StepLabel(9999), "9999");
  EXPECT_EQ(StepLabel(12000), "12k");
  EXPECT_EQ(StepLabel(12001), "12001");
  EXPECT_EQ(StepLabel(12500000), "12.5M");
}

}  // namespace
}  // namespace gyrostat::ctl
