#include "store/series_builder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "store/thin.h"
#include "support/plain_run.h"

namespace gyrostat::store {
namespace {

using model::Signal;

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
