// A disk that takes no more and later does again. A limit on the size of files stands in for it: writes fail with an
// error of the operating system, at whatever page they happen to be.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>

#include "store/store.h"
#include "support/journal_entries.h"
#include "support/temp_dir.h"

namespace gyrostat::store {
namespace {

using testing::AppendAndWait;
using testing::HelloEntry;
using testing::IdOf;
using testing::PlainEntry;
using testing::PlainReport;
using testing::ReportEntry;

// No file of this process may grow beyond a size while this lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);  // The error instead of the end of the process.
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit{bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

model::Report LargeReport(uint64_t n) {
  model::Report report = PlainReport(n);
  report.MutableArray(model::Signal::kLayerGradNorm).assign(20000, static_cast<float>(n));
  return report;
}

TEST(StoreDisk, FailsEntriesWhileFullAndMendsTheRunWhenItIsNot) {
  const testing::TempDir temp;
  auto store = *Store::Open({.data_dir = temp.path()});
  ASSERT_TRUE(AppendAndWait(store.get(), HelloEntry("run", 1, IdOf(1))));
  ASSERT_TRUE(AppendAndWait(store.get(), ReportEntry("run", 1, IdOf(1), PlainReport(1))));
  uint64_t n = 1;
  {
    const FileSizeLimit limit(std::filesystem::file_size(temp.File("gyrostat.db-wal")) + 200000);
    bool durable = true;
    while (durable && n < 100) durable = AppendAndWait(store.get(), ReportEntry("run", 1, IdOf(1), LargeReport(++n)));
    ASSERT_FALSE(durable);
    EXPECT_EQ(store->probe().writable.value(), 0);
    engine::JournalEntry finding = PlainEntry("run", 1, IdOf(1));
    finding.findings.emplace_back().id = 10000001;
    finding.orders.emplace_back().id = IdOf(9);
    EXPECT_FALSE(AppendAndWait(store.get(), finding));
    EXPECT_GE(store->probe().failures_total.value(), 2u);
    // Reading goes on.
    EXPECT_TRUE(store->Findings("run").ok());
  }
  // There is room again, but a replay must not meet the hole.
  EXPECT_FALSE(AppendAndWait(store.get(), ReportEntry("run", 1, IdOf(1), PlainReport(n + 1))));
  engine::JournalEntry mend = ReportEntry("run", 1, IdOf(1), PlainReport(n + 2));
  mend.snapshot = "mended";
  ASSERT_TRUE(AppendAndWait(store.get(), mend));
  EXPECT_EQ(store->probe().writable.value(), 1);
  EXPECT_EQ(store->Findings("run")->size(), 1u) << "what was found meanwhile is told";
  EXPECT_TRUE(store->Orders("run")->empty()) << "what was never sent is not";
  std::vector<uint64_t> sequences;
  ASSERT_TRUE(store->ForEachReport("run", [&](const model::AttemptId&, const model::Report& report) {
    sequences.push_back(report.sequence);
  }).ok());
  ASSERT_EQ(sequences.size(), n);  // 1 to n - 1, and the one that mended.
  EXPECT_EQ(sequences.back(), n + 2);
  EXPECT_TRUE(store->VerifyAudit().ok());
}

}  // namespace
}  // namespace gyrostat::store
