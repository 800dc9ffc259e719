// What becomes of old history, through the store as it is used.
#include "store/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <random>

#include "base/clock.h"
#include "store/chunk.h"
#include "store/store.h"
#include "support/journal_entries.h"
#include "support/old_chunk.h"
#include "support/temp_dir.h"

namespace gyrostat::store {
namespace {

using engine::JournalEntry;
using engine::Resolution;
using model::Signal;
using testing::AppendAndWait;
using testing::IdOf;

constexpr uint32_t kWidth = 64;  // Heads of each of two layers.

model::Report WideReport(uint64_t n) {
  model::Report report = testing::PlainReport(n);
  std::mt19937 random(static_cast<uint32_t>(n));
  std::vector<float>& heads = report.MutableArray(Signal::kAttnLogitMax);
  heads.clear();
  for (uint32_t i = 0; i < 2 * kWidth; ++i) heads.push_back(static_cast<float>(random() % 100000) / 1000);
  return report;
}

class RetentionTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(); }
  // With limits that nothing here reaches.
  void Open() {
    auto store = Store::Open({.data_dir = temp_.path()});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  // What the writer's thread does between batches, to the end.
  void Work(const RetentionOptions& options) {
    store_.reset();
    const std::string path = temp_.File("gyrostat.db");
    auto db = Db::Open(path, Db::Access::kWrite);
    ASSERT_TRUE(db.ok()) << db.status();
    auto retention = Retention::Open(db->get(), options, &probe_, &base::SystemClock());
    ASSERT_TRUE(retention.ok()) << retention.status();
    for (int steps = 0; (*retention)->Step(); ++steps) ASSERT_LT(steps, 10'000) << "it never ends";
    EXPECT_EQ(probe_.retention_failures_total.value(), 0u);
    retention->reset();
    db->reset();
    Open();
  }
  // Reports `from` to `to` of a run, a chunk for every 64, all of them in chunks in the end.
  void Fill(const std::string& run, uint64_t number, uint64_t from, uint64_t to) {
    if (from == 1) {
      JournalEntry hello = testing::HelloEntry(run, number, IdOf(1));
      hello.hello->model.heads = kWidth;
      ASSERT_TRUE(AppendAndWait(store_.get(), hello));
    }
    for (uint64_t n = from; n <= to; ++n) {
      JournalEntry entry = testing::ReportEntry(run, number, IdOf(1), WideReport(n));
      if (n % 64 == 0 || n == to) entry.snapshot = "s";
      if (n < to) {
        store_->Append(entry);
      } else {
        ASSERT_TRUE(AppendAndWait(store_.get(), entry));
      }
    }
  }
  engine::SeriesData Series(Signal signal, std::optional<uint32_t> layer = {}) {
    engine::SeriesQuery query;
    query.run = "run";
    query.signal = signal;
    query.layer = layer;
    const auto series = store_->Series(query);
    EXPECT_TRUE(series.ok()) << series.status();
    return series.ok() ? *series : engine::SeriesData();
  }
  std::string Edit(const std::string& sql) {
    sqlite3* db = nullptr;
    sqlite3_open(temp_.File("gyrostat.db").c_str(), &db);
    char* error = nullptr;
    sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error);
    std::string text = error == nullptr ? "" : error;
    sqlite3_free(error);
    sqlite3_close(db);
    return text;
  }

  const testing::TempDir temp_;
  std::unique_ptr<Store> store_;
  Probe probe_;
};

TEST_F(RetentionTest, ReducesByAgeAndTellsWhichSteps) {
  Fill("run", 1, 1, 512);
  Work({.full_reports = 128, .heads_reports = 256});
  EXPECT_EQ(probe_.chunks_reduced_total.value(), 6u);
  const engine::SeriesData layer = Series(Signal::kAttnLogitMax, 1);
  ASSERT_EQ(layer.notes.reduced.size(), 2u);
  EXPECT_EQ(layer.notes.reduced[0].from_step, 1);
  EXPECT_EQ(layer.notes.reduced[0].to_step, 256);
  EXPECT_EQ(layer.notes.reduced[0].resolution, Resolution::kExtremes);
  EXPECT_EQ(layer.notes.reduced[1].from_step, 257);
  EXPECT_EQ(layer.notes.reduced[1].to_step, 384);
  EXPECT_EQ(layer.notes.reduced[1].resolution, Resolution::kHeads);
  EXPECT_EQ(layer.notes.reports_dropped, 0u);
  size_t from_257 = 0;
  for (const engine::SeriesPoint& point : layer.points) {
    const auto heads = WideReport(static_cast<uint64_t>(point.step));
    float largest = 0;
    for (const float value : heads.Array(Signal::kAttnLogitMax).subspan(kWidth)) largest = std::max(largest, value);
    EXPECT_EQ(point.value, static_cast<double>(largest)) << "what is kept is what was reported";
    from_257 += point.step >= 257 ? 1 : 0;
  }
  EXPECT_EQ(from_257, 256u);
  EXPECT_EQ(layer.points.size() - from_257, 16u) << "one of each 16 of the first 256";
  EXPECT_EQ(Series(Signal::kLoss).points.size(), 256u + 32u);
}

TEST_F(RetentionTest, ReadersOfReportsAreToldThePageIsReduced) {
  Fill("run", 1, 1, 512);
  Work({.full_reports = 128, .heads_reports = 256});
  EXPECT_EQ(probe_.chunks_reduced_total.value(), 6u);
  std::vector<Resolution> resolutions;
  uint64_t reports = 0;
  for (engine::ReportPage page; !page.end;) {
    const auto next = store_->Reports({.run = "run", .from_step = {}, .to_step = {}}, page.next);
    ASSERT_TRUE(next.ok()) << next.status();
    page = *next;
    for (size_t i = 0; i < page.reports.size(); ++i) {
      EXPECT_EQ(page.reports[i].sequence, ++reports);
      EXPECT_EQ(page.arrived_unix_ms[i], 1'700'000'000'000);
    }
    if (!page.reports.empty()) resolutions.push_back(page.resolution);
  }
  EXPECT_EQ(reports, 512u);
  using enum Resolution;
  EXPECT_THAT(resolutions,
              ::testing::ElementsAre(kExtremes, kExtremes, kExtremes, kExtremes, kHeads, kHeads, kFull, kFull));
}

TEST_F(RetentionTest, HoldsARunToItsSizeAndCountsWhatItDropped) {
  Fill("run", 1, 1, 6400);  // Some 3 MiB whole.
  Work({.run_max_mib = 1});
  EXPECT_LE(probe_.history_bytes.value(), 1 << 20);
  const engine::SeriesData loss = Series(Signal::kLoss);
  ASSERT_FALSE(loss.notes.reduced.empty());
  EXPECT_EQ(loss.points.back().step, 6400);
  size_t whole = 0;
  for (const engine::SeriesPoint& point : loss.points) whole += point.step > 6400 - 1024 ? 1 : 0;
  EXPECT_EQ(whole, 1024u) << "the newest are not touched";
}

TEST_F(RetentionTest, DropsTheOldestOfTheLargestRunAboveTheTotal) {
  Fill("run", 1, 1, 6400);
  Fill("small", 2, 1, 64);
  store_.reset();
  // As if everything had been reduced already and were still too large.
  ASSERT_EQ(Edit("UPDATE history SET tier=2, size=100000"), "");
  Work({.total_max_mib = 4});
  EXPECT_LE(probe_.history_bytes.value(), 4 << 20);
  const engine::SeriesData loss = Series(Signal::kLoss);
  EXPECT_GT(loss.notes.reports_dropped, 0u);
  EXPECT_EQ(loss.points.front().step, static_cast<model::Step>(loss.notes.reports_dropped) + 1);
  EXPECT_EQ(loss.points.back().step, 6400);
  // A reader that comes from before hears how much it has missed, once.
  const auto page = store_->Reports({.run = "run", .from_step = {}, .to_step = {}}, {.report = 10});
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->reports_lost, loss.notes.reports_dropped - 10);
  EXPECT_EQ(page->reports.front().sequence, loss.notes.reports_dropped + 1);
  engine::SeriesQuery small;
  small.run = "small";
  small.signal = Signal::kLoss;
  EXPECT_EQ(store_->Series(small)->points.size(), 64u);
}

TEST_F(RetentionTest, ForgetsTheSignalsOfARunThatIsLongOver) {
  Fill("run", 1, 1, 200);  // Stamped 2023.
  Work({});
  EXPECT_EQ(Series(Signal::kLoss).points.size(), 200u);
  Work({.ended_days = 30});
  EXPECT_EQ(probe_.reports_dropped_total.value(), 200u);
  const engine::SeriesData loss = Series(Signal::kLoss);
  EXPECT_TRUE(loss.points.empty());
  EXPECT_EQ(loss.notes.reports_dropped, 200u);
  EXPECT_TRUE(store_->Findings("run").ok()) << "the rest of the run stays";
  // And the run may go on.
  Fill("run", 1, 201, 264);
  EXPECT_EQ(Series(Signal::kLoss).points.size(), 64u);
}

TEST_F(RetentionTest, ADamagedChunkIsToldAndPassedOver) {
  Fill("run", 1, 1, 320);
  store_.reset();
  ASSERT_EQ(Edit("UPDATE chunks SET bytes=substr(bytes, 1, 600)||x'00ff00ff'||substr(bytes, 605) WHERE id=2"), "");
  Work({.full_reports = 64, .heads_reports = 128});
  EXPECT_EQ(probe_.chunks_damaged_total.value(), 1u);
  EXPECT_EQ(probe_.chunks_reduced_total.value(), 3u);
  uint64_t reports = 0, lost = 0;
  for (engine::ReportPage page; !page.end;) {
    const auto next = store_->Reports({.run = "run", .from_step = {}, .to_step = {}}, page.next);
    ASSERT_TRUE(next.ok()) << next.status();
    page = *next;
    reports += page.reports.size();
    lost += page.reports_lost;
  }
  EXPECT_EQ(reports, 256u);
  EXPECT_EQ(lost, 64u);
  uint64_t damaged = 0;
  for (const Signal signal : {Signal::kLoss, Signal::kGradNorm, Signal::kAttnLogitMax, Signal::kLayerGradNorm}) {
    const engine::SeriesData series = Series(signal);
    damaged += series.notes.chunks_damaged;
    EXPECT_EQ(series.points.back().step, 320);
  }
  EXPECT_GE(damaged, 1u) << "whoever needed the damaged bytes was told";
}

// A database as version 3 left it: chunks without checksums, and no table that places them.
TEST_F(RetentionTest, MigratesWithoutLoss) {
  Fill("run", 1, 1, 320);
  const engine::SeriesData before = Series(Signal::kAttnLogitMax, 0);
  store_.reset();
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(temp_.File("gyrostat.db").c_str(), &db), SQLITE_OK);
  const auto as_old = [](sqlite3_context* context, int, sqlite3_value** values) {
    const std::string old = testing::AsOldChunk({static_cast<const char*>(sqlite3_value_blob(values[0])),
                                                 static_cast<size_t>(sqlite3_value_bytes(values[0]))});
    sqlite3_result_blob(context, old.data(), static_cast<int>(old.size()), SQLITE_TRANSIENT);
  };
  ASSERT_EQ(sqlite3_create_function(db, "as_old", 1, SQLITE_UTF8, nullptr, as_old, nullptr, nullptr), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db,
                         "UPDATE chunks SET bytes=as_old(bytes); DROP TABLE history; "
                         "ALTER TABLE runs DROP COLUMN reports; ALTER TABLE runs DROP COLUMN reports_dropped; "
                         "PRAGMA user_version=3",
                         nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
  Open();
  Fill("run", 1, 321, 384);
  Work({.full_reports = 128});
  const engine::SeriesData after = Series(Signal::kAttnLogitMax, 0);
  ASSERT_EQ(after.points.size(), 384u);
  for (size_t i = 0; i < before.points.size(); ++i) EXPECT_EQ(after.points[i].value, before.points[i].value) << i;
  ASSERT_EQ(after.notes.reduced.size(), 1u);
  EXPECT_EQ(after.notes.reduced[0].to_step, 256);
}

}  // namespace
}  // namespace gyrostat::store
