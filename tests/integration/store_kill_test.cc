// The store's promise: what was called durable is there after a kill -9 at any moment, and nothing is there by half.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "store/store.h"
#include "support/journal_entries.h"
#include "support/temp_dir.h"

namespace gyrostat::store {
namespace {

using testing::IdOf;

constexpr uint64_t kRuns = 2;
constexpr uint64_t kSnapshotEvery = 16;

std::string RunName(uint64_t run) { return "run-" + std::to_string(run); }

// The n-th entry of a run: a report, and a finding and an audited word that carry its number.
engine::JournalEntry EntryOf(uint64_t run, uint64_t n) {
  engine::JournalEntry entry = testing::ReportEntry(RunName(run), run, IdOf(1), testing::PlainReport(n));
  if (n == 1) entry.hello = testing::PlainHello(RunName(run), IdOf(1));
  if (n % kSnapshotEvery == 1) entry.snapshot = std::to_string(n);
  model::Finding& finding = entry.findings.emplace_back();
  finding.id = n;
  finding.detector = "loss_spike";
  finding.step_begin = static_cast<model::Step>(n);
  if (n % 8 == 0) entry.audit = engine::AuditNote{"mode", "act", "anna", std::to_string(n)};
  return entry;
}

struct Acked {
  uint64_t run = 0, n = 0;
};

// Writes entries after `from` (by run) until it is killed, and tells `pipe` what was called durable.
[[noreturn]] void WriteUntilKilled(const std::string& dir, const std::map<uint64_t, uint64_t>& from, int pipe) {
  auto store = Store::Open({.data_dir = dir});
  if (!store.ok()) _exit(3);
  for (uint64_t i = 1;; ++i) {
    for (uint64_t run = 1; run <= kRuns; ++run) {
      engine::JournalEntry entry = EntryOf(run, from.at(run) + i);
      entry.done = [pipe, acked = Acked{run, from.at(run) + i}](bool durable) {
        if (!durable || write(pipe, &acked, sizeof(acked)) != sizeof(acked)) _exit(4);
      };
      (*store)->Append(std::move(entry));
    }
  }
}

// Forks a writer, kills it after `acks` answers and whatever comes before the signal does, and returns the last number
// called durable by run.
std::map<uint64_t, uint64_t> RunAndKill(const std::string& dir, const std::map<uint64_t, uint64_t>& from, int acks) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    WriteUntilKilled(dir, from, ends[1]);
  }
  close(ends[1]);
  std::map<uint64_t, uint64_t> durable = from;
  Acked acked;
  int count = 0;
  while (read(ends[0], &acked, sizeof(acked)) == sizeof(acked)) {
    EXPECT_EQ(acked.n, durable[acked.run] + 1) << "answers come in order";
    durable[acked.run] = acked.n;
    if (++count == acks) kill(child, SIGKILL);
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "exit " << WEXITSTATUS(status);
  return durable;
}

// What is stored of a run; fails unless it is whole.
uint64_t CheckRun(Store* store, const engine::StoredRun& stored) {
  uint64_t reports = 0, findings = 0;
  EXPECT_TRUE(store->ForEachReport(stored.run, [&](const model::AttemptId&, const model::Report& report) {
    EXPECT_EQ(report.sequence, ++reports) << stored.run;
  }).ok());
  const auto rows = store->Findings(stored.run);
  EXPECT_TRUE(rows.ok());
  for (const auto& row : *rows) EXPECT_EQ(row.finding.id, ++findings) << stored.run;
  EXPECT_EQ(findings, reports) << "an entry is there by half";
  const uint64_t snapshot = std::stoull(stored.snapshot);
  EXPECT_EQ(snapshot, (reports - 1) / kSnapshotEvery * kSnapshotEvery + 1);
  EXPECT_EQ(stored.events.size(), reports - snapshot);
  return reports;
}

TEST(StoreKill, LosesNothingDurableAndKeepsNothingByHalf) {
  const testing::TempDir temp;
  std::mt19937 random(20);
  std::map<uint64_t, uint64_t> there;
  for (uint64_t run = 1; run <= kRuns; ++run) there[run] = 0;
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    const int acks = 1 + static_cast<int>(random() % 80);
    const std::map<uint64_t, uint64_t> durable = RunAndKill(temp.path(), there, acks);
    auto store = Store::Open({.data_dir = temp.path()});
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_TRUE((*store)->VerifyAudit().ok());
    std::set<uint64_t> seen;
    ASSERT_TRUE((*store)->ForEachRun([&](const engine::StoredRun& stored) {
      seen.insert(stored.number);
      const uint64_t reports = CheckRun(store->get(), stored);
      EXPECT_GE(reports, durable.at(stored.number)) << stored.run << " lost what was called durable";
      there[stored.number] = reports;
      return absl::OkStatus();
    }).ok());
    for (const auto& [run, n] : durable) EXPECT_TRUE(n == 0 || seen.contains(run)) << run;
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace gyrostat::store
