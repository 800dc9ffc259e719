#include "web/decimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace gyrostat::web {
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
    EXPECT_TRUE(std::any_of(kept.begin(), kept.end(), [](const auto& each) { return !std::isfinite(each.value); }));
    EXPECT_TRUE(Has(kept, 4300)) << "a neighbour does not hide behind it";
  }
}

TEST(Decimate, CopesWithStepsFarApart) {
  std::vector<SeriesPoint> points;
  for (int64_t i = 0; i < 1000; ++i) points.push_back({i < 999 ? i : INT64_MAX / 2, 1.0 * static_cast<double>(i)});
  const auto kept = Decimate(points, 20);
  EXPECT_LE(kept.size(), 20u);
  EXPECT_TRUE(Has(kept, 0) && Has(kept, INT64_MAX / 2));
}

}  // namespace
}  // namespace gyrostat::web
