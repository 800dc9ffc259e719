#include "store/decimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace gyrostat::store {
namespace {

using engine::SeriesPoint;

std::vector<SeriesPoint> Wave(size_t count) {
  std::vector<SeriesPoint> points;
  for (size_t i = 0; i < count; ++i)
    points.push_back({static_cast<model::Step>(i), 2 + std::sin(0.01 * static_cast<double>(i))});
  return points;
}

bool Has(const std::vector<SeriesPoint>& points, model::Step step) {
  return std::any_of(points.begin(), points.end(), [step](const SeriesPoint& each) { return each.step == step; });
}

TEST(Decimate, LeavesAShortSeriesAlone) {
  EXPECT_EQ(Decimate(Wave(100), 100).size(), 100u);
  EXPECT_TRUE(Decimate({}, 10).empty());
  EXPECT_EQ(Decimate(Wave(1), 4).size(), 1u);
}

TEST(Decimate, KeepsEveryPeakAndDip) {
  for (const size_t points_max : {4u, 5u, 10u, 100u, 777u}) {
    for (const size_t at : {1u, 499u, 5000u, 9998u}) {
      std::vector<SeriesPoint> points = Wave(10000);
      points[at].value = 40;
      points[(at + 3000) % 9990 + 5].value = -40;
      const auto kept = Decimate(points, points_max);
      EXPECT_LE(kept.size(), points_max);
      EXPECT_TRUE(Has(kept, 0) && Has(kept, 9999)) << points_max;
      EXPECT_TRUE(Has(kept, static_cast<model::Step>(at))) << points_max << " " << at;
      EXPECT_TRUE(Has(kept, static_cast<model::Step>((at + 3000) % 9990 + 5)));
      EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(), [](auto& a, auto& b) { return a.step < b.step; }));
      EXPECT_TRUE(std::adjacent_find(kept.begin(), kept.end(), [](auto& a, auto& b) { return a.step == b.step; }) ==
                  kept.end());
    }
  }
}

TEST(Decimate, ShowsWhatIsNotFinite) {
  for (const double strange : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity()}) {
    std::vector<SeriesPoint> points = Wave(10000);
    for (size_t i = 4000; i < 4200; ++i) points[i].value = strange;
    points[4300].value = 50;
    const auto kept = Decimate(points, 50);
    EXPECT_LE(kept.size(), 50u);
    EXPECT_TRUE(Has(kept, 4000)) << "the first of them";
    EXPECT_TRUE(Has(kept, 4300)) << "a neighbour does not hide behind it";
  }
}

TEST(Decimate, HidesNothingStrangeBehindAnother) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  std::vector<SeriesPoint> points = Wave(10000);
  points[5000].value = kInf;
  points[5001].value = std::numeric_limits<double>::quiet_NaN();
  points[5002].value = -kInf;
  points[5003].value = 70;
  points[5004].value = -70;
  for (const size_t points_max : {7u, 20u, 500u}) {
    const auto kept = Decimate(points, points_max);
    EXPECT_LE(kept.size(), points_max);
    for (const model::Step step : {0, 5000, 5001, 5002, 5003, 5004, 9999})
      EXPECT_TRUE(Has(kept, step)) << points_max << " " << step;
  }
  const auto few = Decimate(points, 5);
  EXPECT_EQ(few.size(), 5u);
  for (const model::Step step : {0, 5000, 5001, 5002, 9999}) EXPECT_TRUE(Has(few, step)) << step;
  const auto two = Decimate(points, 2);
  EXPECT_TRUE(two.size() == 2 && Has(two, 0) && Has(two, 9999));
}

TEST(Decimate, CopesWithNothingFinite) {
  std::vector<SeriesPoint> points = Wave(100);
  for (SeriesPoint& each : points) each.value = std::numeric_limits<double>::quiet_NaN();
  const auto kept = Decimate(points, 10);
  EXPECT_LE(kept.size(), 10u);
  EXPECT_TRUE(Has(kept, 0) && Has(kept, 99));
}

TEST(Decimate, CopesWithStepsFarApart) {
  std::vector<SeriesPoint> points;
  for (int64_t i = 0; i < 1000; ++i) points.push_back({i < 999 ? i : INT64_MAX / 2, 1.0 * static_cast<double>(i)});
  const auto kept = Decimate(points, 20);
  EXPECT_LE(kept.size(), 20u);
  EXPECT_TRUE(Has(kept, 0) && Has(kept, INT64_MAX / 2));
}

}  // namespace
}  // namespace gyrostat::store
