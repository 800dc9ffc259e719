#include "web/past.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/engine_fakes.h"
#include "support/plain_run.h"

namespace gyrostat::web {
namespace {

using model::Signal;
using ::testing::ElementsAre;

constexpr size_t kPage = 10;

// Reports in pages of ten, as the store hands them over: a page is found by its steps, a cursor counts reports.
class PagedHistory : public testing::FakeHistory {
 public:
  std::vector<model::Report> reports;
  model::Step whole_from = 0;  // Pages that begin before it are reduced.
  size_t pages_read = 0;

  absl::StatusOr<engine::ReportPage> Reports(const engine::ReportQuery& query,
                                             const engine::ReportCursor& from) override {
    if (query.run != "a") return absl::NotFoundError("run " + query.run + " is not known");
    engine::ReportPage page;
    size_t at = static_cast<size_t>(from.report) / kPage;
    for (; at * kPage < reports.size() && page.reports.empty(); ++at)
      for (size_t i = at * kPage; i < std::min((at + 1) * kPage, reports.size()); ++i)
        if (reports[i].step >= *query.from_step && reports[i].step <= *query.to_step)
          page.reports.push_back(reports[i]);
    if (!page.reports.empty() && page.reports[0].step < whole_from) page.resolution = engine::Resolution::kHeads;
    page.next.report = at * kPage;
    page.end = at * kPage >= reports.size();
    pages_read += page.reports.empty() ? 0 : 1;
    return page;
  }
};

model::Report Layers(model::Step step, std::vector<float> values) {
  model::Report report;
  report.step = step;
  report.MutableArray(Signal::kLayerGradNorm) = std::move(values);
  return report;
}

PagedHistory Steps(int count) {
  PagedHistory history;
  for (int i = 0; i < count; ++i) history.reports.push_back(Layers(i, {static_cast<float>(i), 1}));
  return history;
}

LayerMapQuery Query(model::Step from, model::Step to, size_t columns) {
  return {.run = "a", .signal = Signal::kLayerGradNorm, .layers = 2, .from = from, .to = to, .columns = columns};
}

TEST(Past, SaysWhatRetentionHasLeft) {
  PagedHistory history = Steps(100);
  history.whole_from = 50;
  EXPECT_EQ(LayersOverTime(&history, Query(0, 99, 4))->resolution, engine::Resolution::kHeads);
  EXPECT_EQ(LayersOverTime(&history, Query(50, 99, 4))->resolution, engine::Resolution::kFull);
  EXPECT_EQ(ReportAt(&history, "a", 49)->resolution, engine::Resolution::kHeads);
  EXPECT_EQ(ReportAt(&history, "a", 50)->resolution, engine::Resolution::kFull);
}

TEST(Past, FindsTheNewestReportOfAStep) {
  PagedHistory history = Steps(100);
  history.reports.push_back(Layers(42, {7, 7}));
  const auto report = ReportAt(&history, "a", 42);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->report.Array(Signal::kLayerGradNorm)[1], 7) << "told again after a restart";
  EXPECT_TRUE(absl::IsNotFound(ReportAt(&history, "a", 1000).status()));
  EXPECT_TRUE(absl::IsNotFound(ReportAt(&history, "b", 42).status()));
}

TEST(Past, KeepsTheLargestOfEachStretch) {
  PagedHistory history = Steps(100);
  history.reports[37] = Layers(37, {500, 1});
  const auto map = LayersOverTime(&history, Query(0, 99, 4));
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->rows, 2u);
  EXPECT_FALSE(map->sampled);
  EXPECT_THAT(map->steps, ElementsAre(0, 25, 50, 75));
  EXPECT_THAT(map->values, ElementsAre(24, 1, 500, 1, 74, 1, 99, 1));
}

TEST(Past, ShowsNotANumberAndLeavesAbsentAlone) {
  PagedHistory history = Steps(0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  history.reports = {Layers(0, {model::kAbsent, 2}), Layers(1, {model::kAbsent, nan}), Layers(2, {model::kAbsent, 3})};
  const auto map = LayersOverTime(&history, Query(0, 2, 1));
  ASSERT_TRUE(map.ok() && map->values.size() == 2);
  EXPECT_EQ(map->values[0], model::kAbsent);
  EXPECT_TRUE(std::isnan(map->values[1]));
}

TEST(Past, FoldsTheHeadsOfALayer) {
  PagedHistory history;
  model::Report report;
  report.MutableArray(Signal::kAttnLogitMax) = {1, 9, 2, 3, 8, 4};
  history.reports = {report};
  LayerMapQuery query = Query(0, 0, 1);
  query.signal = Signal::kAttnLogitMax;
  const auto map = LayersOverTime(&history, query);
  ASSERT_TRUE(map.ok());
  EXPECT_THAT(map->values, ElementsAre(9, 8));
}

TEST(Past, SamplesALongHistoryWithinItsPages) {
  PagedHistory history = Steps(20000);
  LayerMapQuery query = Query(0, 19999, 200);
  query.pages_max = 40;
  const auto map = LayersOverTime(&history, query);
  ASSERT_TRUE(map.ok());
  EXPECT_TRUE(map->sampled);
  EXPECT_LE(history.pages_read, 80u) << "forty to see that it is long, forty to show it";
  EXPECT_GE(map->steps.size(), 39u);
  EXPECT_LT(map->steps.front(), 500);
  EXPECT_GT(map->steps.back(), 19000);
  EXPECT_TRUE(std::is_sorted(map->steps.begin(), map->steps.end()));
}

TEST(Past, AWindowBeyondTheHistoryIsEmpty) {
  PagedHistory history = Steps(10);
  const auto map = LayersOverTime(&history, Query(50, 60, 8));
  ASSERT_TRUE(map.ok());
  EXPECT_TRUE(map->steps.empty() && map->values.empty() && !map->sampled);
  EXPECT_EQ(LayersOverTime(&history, {.run = "b", .signal = Signal::kLayerGradNorm}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(Past, TheNewestModelCounts) {
  PagedHistory history = Steps(5);
  history.reports.push_back(Layers(5, {1, 2, 3}));
  const auto map = LayersOverTime(&history, Query(0, 5, 6));
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->rows, 3u);
  EXPECT_THAT(map->steps, ElementsAre(5));
}

}  // namespace
}  // namespace gyrostat::web
