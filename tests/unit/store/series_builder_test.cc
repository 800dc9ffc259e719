#include "store/series_builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "store/thin.h"
#include "support/plain_run.h"

namespace gyrostat::store {
namespace {

using model::Signal;

std::vector<engine::SeriesPoint> Line(size_t count) {
  std::vector<engine::SeriesPoint> points;
  for (size_t i = 0; i < count; ++i) points.push_back({static_cast<model::Step>(i), std::sin(static_cast<double>(i))});
  return points;
}

TEST(Decimate, LeavesWhatIsFewEnough) { EXPECT_EQ(Decimate(Line(10), 10).size(), 10u); }

TEST(Decimate, KeepsPeaksAtTheirSteps) {
  std::vector<engine::SeriesPoint> points = Line(1000);
  points[333].value = 50;
  points[334].value = -50;
  points[700].value = std::numeric_limits<double>::quiet_NaN();
  const auto kept = Decimate(points, 20);
  EXPECT_LE(kept.size(), 20u);
  bool high = false, low = false, nan = false;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (i > 0) {
      EXPECT_GT(kept[i].step, kept[i - 1].step);
    }
    high |= kept[i].step == 333 && kept[i].value == 50;
    low |= kept[i].step == 334 && kept[i].value == -50;
    nan |= kept[i].step == 700 && std::isnan(kept[i].value);
  }
  EXPECT_TRUE(high && low && nan);
}

// What retention keeps answers the questions for a layer and for the model as the whole did.
TEST(SeriesBuilder, ReadsReducedChunks) {
  std::vector<model::Report> reports;
  for (uint64_t n = 1; n <= 40; ++n) {
    reports.push_back(testing::PlainReport(n));
    reports.back().MutableArray(Signal::kAttnLogitMax).resize(256);
    for (size_t i = 0; i < 256; ++i)
      reports.back().MutableArray(Signal::kAttnLogitMax)[i] = static_cast<float>((i * 7919 + n * 104729) % 1009);
  }
  std::vector<model::Report> thin = reports;
  Thin(engine::Resolution::kHeads, 4, 64, &thin);
  const auto points = [](const std::vector<model::Report>& of, const engine::SeriesQuery& query) {
    const std::string bytes = PackChunk(of);
    const auto column = ReadColumn(
        [&](size_t at, size_t size, char* out) {
          bytes.copy(out, size, at);
          return absl::OkStatus();
        },
        bytes.size(), query.signal, "");
    EXPECT_TRUE(column.ok());
    SeriesBuilder builder(query);
    builder.Take(*column, 4, 64);
    return *builder.Points();
  };
  engine::SeriesQuery query;
  query.signal = Signal::kAttnLogitMax;
  for (const std::optional<uint32_t> layer : {std::optional<uint32_t>(), std::optional<uint32_t>(2)}) {
    query.layer = layer;
    const auto whole = points(reports, query), reduced = points(thin, query);
    ASSERT_EQ(whole.size(), 40u);
    ASSERT_EQ(reduced.size(), 40u);
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(reduced[i].value, whole[i].value);
  }
  query.head = 5;  // Of one head only where it was the worst of its layer.
  for (const auto& point : points(thin, query))
    EXPECT_EQ(point.value,
              static_cast<double>(reports[static_cast<size_t>(point.step) - 1].Array(Signal::kAttnLogitMax)[133]));
}

}  // namespace
}  // namespace gyrostat::store
