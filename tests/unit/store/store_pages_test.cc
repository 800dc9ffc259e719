// Reports page by page, while the run goes on.
#include <gtest/gtest.h>

#include "store/store.h"
#include "support/journal_entries.h"
#include "support/temp_dir.h"

namespace gyrostat::store {
namespace {

using engine::JournalEntry;
using testing::AppendAndWait;
using testing::HelloEntry;
using testing::IdOf;
using testing::PlainReport;
using testing::ReportEntry;

class StorePages : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = Store::Open({.data_dir = temp_.path()});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  bool Append(JournalEntry entry) { return AppendAndWait(store_.get(), std::move(entry)); }

  const testing::TempDir temp_;
  std::unique_ptr<Store> store_;
};

// Attempts, chunks, a tail that becomes a chunk between two pages: each report comes once, in its order.
TEST_F(StorePages, PagesThroughTheReportsOfAGrowingRun) {
  ASSERT_TRUE(Append(HelloEntry("other", 2, IdOf(9))));
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(1))));
  std::vector<std::pair<uint8_t, uint64_t>> said, got;
  const auto report = [&](uint8_t attempt, uint64_t n, bool snapshot) {
    JournalEntry entry = ReportEntry("run", 1, IdOf(attempt), PlainReport(n));
    if (snapshot) entry.snapshot = "s";
    ASSERT_TRUE(Append(entry));
    JournalEntry stranger = ReportEntry("other", 2, IdOf(9), PlainReport(n));
    if (snapshot) stranger.snapshot = "s";
    ASSERT_TRUE(Append(stranger));
    said.emplace_back(attempt, n);
  };
  for (uint64_t n = 1; n <= 100; ++n) report(1, n, n == 64);
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(2))));
  for (uint64_t n = 1; n <= 20; ++n) report(2, n, false);
  engine::ReportPage page;
  for (int pages = 0; !page.end; ++pages) {
    ASSERT_LT(pages, 20);
    const auto next = store_->Reports({.run = "run", .from_step = {}, .to_step = {}}, page.next);
    ASSERT_TRUE(next.ok()) << next.status();
    page = *next;
    for (const model::Report& each : page.reports) {
      got.emplace_back(page.attempt.bytes[0], each.sequence);
      EXPECT_EQ(each.Scalar(model::Signal::kLoss), PlainReport(each.sequence).Scalar(model::Signal::kLoss));
    }
    if (pages == 1) report(2, 21, true);  // What was read of the tail lies in chunks now.
    if (pages == 2) report(2, 22, false);
  }
  EXPECT_EQ(got, said);
  const auto hello = store_->HelloOf("run", IdOf(2));
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(hello->attempt, IdOf(2));
  EXPECT_EQ(store_->HelloOf("run", IdOf(3)).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(StorePages, PagesThroughSomeSteps) {
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(1))));
  for (uint64_t n = 1; n <= 150; ++n) {
    JournalEntry entry = ReportEntry("run", 1, IdOf(1), PlainReport(n));
    if (n % 20 == 0) entry.snapshot = "s";
    ASSERT_TRUE(Append(entry));
  }
  std::vector<model::Step> steps;
  engine::ReportPage page;
  while (!page.end) {
    const auto next = store_->Reports({.run = "run", .from_step = 59, .to_step = 145}, page.next);
    ASSERT_TRUE(next.ok()) << next.status();
    page = *next;
    for (const model::Report& each : page.reports) steps.push_back(each.step);
  }
  EXPECT_EQ(steps.size(), 87u);
  EXPECT_EQ(steps.front(), 59);
  EXPECT_EQ(steps.back(), 145);
}

}  // namespace
}  // namespace gyrostat::store
