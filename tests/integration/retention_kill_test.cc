// kill -9 while old history is being reduced: every report is still there, each whole or properly reduced.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <string>

#include "base/clock.h"
#include "store/retention.h"
#include "store/store.h"
#include "support/journal_entries.h"
#include "support/temp_dir.h"

namespace gyrostat::store {
namespace {

using model::Signal;
using testing::IdOf;

constexpr uint64_t kReportsInAll = 64 * 64;
constexpr uint32_t kHeads = 512;

float Value(uint64_t n, size_t i) { return static_cast<float>((n * 2654435761u + i * 40503u) % 100003); }

model::Report ReportAt(uint64_t n) {
  model::Report report = testing::PlainReport(n);
  std::vector<float>& heads = report.MutableArray(Signal::kAttnLogitMax);
  heads.resize(2 * kHeads);
  for (size_t i = 0; i < heads.size(); ++i) heads[i] = Value(n, i);
  return report;
}

void Fill(const std::string& dir) {
  auto store = Store::Open({.data_dir = dir});
  ASSERT_TRUE(store.ok()) << store.status();
  engine::JournalEntry hello = testing::HelloEntry("run", 1, IdOf(1));
  hello.hello->model.heads = kHeads;
  (*store)->Append(hello);
  for (uint64_t n = 1; n <= kReportsInAll; ++n) {
    engine::JournalEntry entry = testing::ReportEntry("run", 1, IdOf(1), ReportAt(n));
    if (n % 64 == 0) entry.snapshot = "s";
    (*store)->Append(std::move(entry));
  }
}

// Reduces, telling a pipe after each piece of work; killed after `pieces` and whatever comes before the signal does, or
// when there is nothing more to reduce.
void ReduceAndKill(const std::string& dir, const RetentionOptions& options, int pieces) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    Probe probe;
    auto db = Db::Open(dir + "/gyrostat.db", Db::Access::kWrite);
    if (!db.ok()) _exit(3);
    auto retention = Retention::Open(db->get(), options, &probe, &base::SystemClock());
    if (!retention.ok()) _exit(3);
    while ((*retention)->Step())
      if (write(ends[1], "x", 1) != 1) _exit(4);
    close(ends[1]);
    for (;;) pause();  // Until the signal comes.
  }
  close(ends[1]);
  char piece = 0;
  for (int count = 0; read(ends[0], &piece, 1) == 1;)
    if (++count == pieces) kill(child, SIGKILL);
  kill(child, SIGKILL);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "exit " << WEXITSTATUS(status);
}

// Fails unless every report is there in its order; returns how many are whole.
uint64_t CountWhole(const std::string& dir) {
  auto store = Store::Open({.data_dir = dir});
  EXPECT_TRUE(store.ok()) << store.status();
  uint64_t reports = 0, whole = 0;
  for (engine::ReportPage page; !page.end;) {
    const auto next = (*store)->Reports({.run = "run", .from_step = {}, .to_step = {}}, page.next);
    if (!next.ok()) {
      ADD_FAILURE() << next.status();
      break;
    }
    page = *next;
    EXPECT_EQ(page.reports_lost, 0u);
    for (const model::Report& report : page.reports) {
      EXPECT_EQ(report.sequence, ++reports);
      const auto heads = report.Array(Signal::kAttnLogitMax);
      size_t present = 0;
      float largest = 0, was = 0;
      for (size_t i = 0; i < heads.size(); ++i) {
        present += model::IsAbsent(heads[i]) ? 0 : 1;
        largest = std::max(largest, heads[i]);
        was = std::max(was, Value(reports, i));
      }
      const bool full = page.resolution == engine::Resolution::kFull;
      EXPECT_EQ(present == size_t{2} * kHeads, full) << "at " << reports << ": half of a change";
      EXPECT_EQ(largest, was) << "at " << reports;
      whole += full ? 1 : 0;
    }
  }
  EXPECT_EQ(reports, kReportsInAll);
  return whole;
}

TEST(RetentionKill, LosesNothing) {
  const testing::TempDir temp;
  Fill(temp.path());
  ASSERT_FALSE(HasFailure());
  std::mt19937 random(4);
  uint64_t whole = CountWhole(temp.path());
  EXPECT_EQ(whole, kReportsInAll);
  for (int round = 0; round < 8 && whole > 64; ++round) {
    SCOPED_TRACE(round);
    ReduceAndKill(temp.path(), {.full_reports = 64}, 1 + static_cast<int>(random() % 10));
    const uint64_t now = CountWhole(temp.path());
    EXPECT_LT(now, whole) << "a chunk that was reduced before the kill";
    whole = now;
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace gyrostat::store
