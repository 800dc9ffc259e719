#include "store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "support/journal_entries.h"
#include "support/temp_dir.h"

namespace gyrostat::store {
namespace {

using engine::JournalEntry;
using testing::AppendAndWait;
using testing::HelloEntry;
using testing::IdOf;
using testing::PlainEntry;
using testing::PlainReport;
using testing::ReportEntry;
using ::testing::HasSubstr;

std::unique_ptr<Store> OpenStore(const std::string& dir) {
  auto store = Store::Open({.data_dir = dir});
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

absl::Status OpenError(const std::string& dir) { return Store::Open({.data_dir = dir}).status(); }

// Runs SQL on the file behind the store's back.
std::string Edit(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  sqlite3_open(path.c_str(), &db);
  char* error = nullptr;
  sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error);
  std::string text = error == nullptr ? "" : error;
  sqlite3_free(error);
  sqlite3_close(db);
  return text;
}

model::Finding FindingAt(uint64_t id, model::Step step) {
  model::Finding finding;
  finding.id = id;
  finding.key = 7;
  finding.detector = "loss_spike";
  finding.severity = model::Severity::kWarning;
  finding.signal = model::Signal::kLoss;
  finding.layer = 3;
  finding.step_begin = finding.step_detected = step;
  finding.value = 9.5;
  finding.expected = std::numeric_limits<double>::quiet_NaN();
  finding.message = "loss jumped";
  finding.recommend = model::InterventionKind::kCheckpoint;
  return finding;
}

model::Intervention IntentIn(model::InterventionState state) {
  model::Intervention intent;
  intent.id = "run/1";
  intent.state = state;
  intent.mode = model::Mode::kAct;
  intent.reason = "head 3 of layer 1 is over tau";
  intent.author = "policy";
  intent.step_proposed = 17;
  intent.heads = 1;
  return intent;
}

std::vector<engine::StoredRun> StoredRuns(Store* store) {
  std::vector<engine::StoredRun> runs;
  EXPECT_TRUE(store->ForEachRun([&](engine::StoredRun run) {
    runs.push_back(std::move(run));
    return absl::OkStatus();
  }).ok());
  return runs;
}

std::vector<engine::SeriesPoint> Points(Store* store, model::Signal signal) {
  engine::SeriesQuery query;
  query.run = "run";
  query.signal = signal;
  const auto points = store->Series(query);
  EXPECT_TRUE(points.ok()) << points.status();
  return points.ok() ? points->points : std::vector<engine::SeriesPoint>();
}

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override { Reopen(); }
  void Reopen() {
    store_.reset();
    store_ = OpenStore(temp_.path());
    ASSERT_NE(store_, nullptr);
  }
  std::string DbPath() const { return temp_.File("gyrostat.db"); }
  bool Append(JournalEntry entry) { return AppendAndWait(store_.get(), std::move(entry)); }

  const testing::TempDir temp_;
  std::unique_ptr<Store> store_;
};

TEST_F(StoreTest, GivesARestartTheSnapshotAndTheEventsSince) {
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(1))));
  const JournalEntry report = ReportEntry("run", 1, IdOf(1), PlainReport(1));
  const std::string event = report.event;
  ASSERT_TRUE(Append(report));
  Reopen();
  const auto runs = StoredRuns(store_.get());
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].run, "run");
  EXPECT_EQ(runs[0].number, 1u);
  EXPECT_EQ(runs[0].snapshot, "snapshot at hello");
  EXPECT_EQ(runs[0].events, (std::vector<std::string>{event}));
}

TEST_F(StoreTest, KeepsTheNewestStateOfAFinding) {
  JournalEntry first = HelloEntry("run", 1, IdOf(1));
  first.findings = {FindingAt(10000001, 5)};
  ASSERT_TRUE(Append(first));
  JournalEntry second = PlainEntry("run", 1, IdOf(2));  // Ended when the next attempt began.
  second.findings = {FindingAt(10000001, 5)};
  second.findings[0].step_end = 8;
  second.findings[0].healed = true;
  ASSERT_TRUE(Append(second));
  const auto rows = store_->Findings("run");
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(rows->size(), 1u);
  const model::Finding& f = rows->front().finding;
  EXPECT_EQ(rows->front().attempt, IdOf(1));
  EXPECT_EQ(f.id, 10000001u);
  EXPECT_EQ(f.key, 7u);
  EXPECT_EQ(f.detector, "loss_spike");
  EXPECT_EQ(f.severity, model::Severity::kWarning);
  EXPECT_EQ(f.signal, model::Signal::kLoss);
  EXPECT_EQ(f.layer, 3u);
  EXPECT_FALSE(f.head.has_value());
  EXPECT_EQ(f.step_begin, 5);
  EXPECT_EQ(f.step_end, 8);
  EXPECT_EQ(f.healed, true);
  EXPECT_EQ(f.value, 9.5);
  EXPECT_TRUE(std::isnan(f.expected));
  EXPECT_EQ(f.message, "loss jumped");
  EXPECT_EQ(f.recommend, model::InterventionKind::kCheckpoint);
}

TEST_F(StoreTest, KeepsOrdersOnceAndAcksAlways) {
  model::Order order;
  order.id = IdOf(9);
  order.run = "run";
  order.intent_id = "run/1";
  order.basis = 16;
  order.expires_boundary = 32;
  order.entries = {{1, 3, 42.5f, 1234}};
  JournalEntry entry = HelloEntry("run", 1, IdOf(1));
  entry.interventions = {IntentIn(model::InterventionState::kSent)};
  entry.orders = {order};
  ASSERT_TRUE(Append(entry));
  JournalEntry again = PlainEntry("run", 1, IdOf(1));
  again.orders = {order};
  model::Ack ack;
  ack.order_id = order.id;
  ack.outcome = model::AckOutcome::kApplied;
  ack.applied = {{1}, {3}, {1234}};
  again.ack = ack;
  again.interventions = {IntentIn(model::InterventionState::kApplied)};
  again.interventions[0].outcome = model::Outcome::kEffective;
  again.interventions[0].step_applied = 18;
  again.interventions[0].median_delay_boundaries = 1.5;
  ASSERT_TRUE(Append(again));

  const auto orders = store_->Orders("run");
  ASSERT_TRUE(orders.ok());
  ASSERT_EQ(orders->size(), 1u);
  EXPECT_EQ(orders->front().entries[0].reported_max, 42.5f);
  const auto acks = store_->Acks("run");
  ASSERT_TRUE(acks.ok());
  ASSERT_EQ(acks->size(), 1u);
  EXPECT_EQ(acks->front().applied.ticks, (std::vector<int64_t>{1234}));
  const auto rows = store_->Interventions("run");
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(rows->size(), 1u);
  EXPECT_EQ(rows->front().intervention.state, model::InterventionState::kApplied);
  EXPECT_EQ(rows->front().intervention.outcome, model::Outcome::kEffective);
  EXPECT_EQ(rows->front().intervention.step_applied, 18);
  EXPECT_EQ(rows->front().intervention.median_delay_boundaries, 1.5);
  EXPECT_EQ(rows->front().intervention.reason, "head 3 of layer 1 is over tau");
}

TEST_F(StoreTest, NamesAnUnknownRun) {
  EXPECT_EQ(store_->Findings("nobody").status(), absl::NotFoundError("run nobody is not known"));
  EXPECT_EQ(store_->Interventions("nobody").status(), absl::NotFoundError("run nobody is not known"));
  engine::SeriesQuery query;
  query.run = "nobody";
  query.signal = model::Signal::kLoss;
  EXPECT_EQ(store_->Series(query).status(), absl::NotFoundError("run nobody is not known"));
}

TEST_F(StoreTest, ShowsAReportAsSoonAsItIsDurable) {
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(1))));
  for (uint64_t n = 1; n <= 150; ++n) {
    JournalEntry entry = ReportEntry("run", 1, IdOf(1), PlainReport(n));
    if (n % 64 == 0) entry.snapshot = "snapshot " + std::to_string(n);
    ASSERT_TRUE(Append(entry));
    const bool look = n % 10 == 0 || n == 64 || n == 65;
    ASSERT_TRUE(!look || Points(store_.get(), model::Signal::kLoss).size() == n) << n;
  }
  const auto points = Points(store_.get(), model::Signal::kLoss);
  for (size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(points[i].step, static_cast<model::Step>(i + 1));
    EXPECT_EQ(points[i].value, PlainReport(i + 1).Scalar(model::Signal::kLoss));
  }
  EXPECT_EQ(StoredRuns(store_.get())[0].events.size(), 150u - 128u);
  size_t reports = 0;
  ASSERT_TRUE(store_->ForEachReport("run", [&](const model::AttemptId& attempt, const model::Report& report) {
    EXPECT_EQ(attempt, IdOf(1));
    EXPECT_EQ(report.sequence, ++reports);
  }).ok());
  EXPECT_EQ(reports, 150u);
}

TEST_F(StoreTest, ShowsTheNewestValueOfARepeatedStep) {
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(1))));
  uint64_t sequence = 0;
  const auto report = [&](model::Step step, double loss, bool snapshot) {
    model::Report r = PlainReport(++sequence);
    r.step = step;
    r.SetScalar(model::Signal::kLoss, loss);
    JournalEntry entry = ReportEntry("run", 1, IdOf(1), r);
    if (snapshot) entry.snapshot = "s";
    ASSERT_TRUE(Append(entry));
  };
  for (model::Step step = 1; step <= 20; ++step) report(step, 1, step == 20);
  for (model::Step step = 11; step <= 15; ++step) report(step, 2, false);  // Rolled back; still in the tail.
  const auto points = Points(store_.get(), model::Signal::kLoss);
  ASSERT_EQ(points.size(), 20u);
  for (const auto& point : points) EXPECT_EQ(point.value, point.step >= 11 && point.step <= 15 ? 2 : 1) << point.step;
  size_t reports = 0;
  ASSERT_TRUE(store_->ForEachReport("run", [&](const auto&, const auto&) { ++reports; }).ok());
  EXPECT_EQ(reports, 25u) << "the record keeps both";
}

TEST_F(StoreTest, AnswersForLayersHeadsAndRanges) {
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(1))));
  for (uint64_t n = 1; n <= 10; ++n) {
    JournalEntry entry = ReportEntry("run", 1, IdOf(1), PlainReport(n));
    if (n == 5) entry.snapshot = "s";
    ASSERT_TRUE(Append(entry));
  }
  engine::SeriesQuery query;
  query.run = "run";
  query.signal = model::Signal::kAttnLogitMax;
  query.layer = 1;
  query.head = 2;
  query.from_step = 4;
  query.to_step = 7;
  const auto points = store_->Series(query);
  ASSERT_TRUE(points.ok());
  ASSERT_EQ(points->points.size(), 4u);
  EXPECT_EQ(points->points.front().step, 4);
  EXPECT_EQ(points->points.front().value, 8 + 6.0 / 8);
  query.head.reset();
  EXPECT_EQ(store_->Series(query)->points.front().value, 8 + 7.0 / 8) << "the largest of the layer";
  query.layer = 2;
  EXPECT_EQ(store_->Series(query).status().message(), "layer 2 of attn_logit_max: it has 2, counted from 0");
}

TEST_F(StoreTest, KeepsAttemptsApart) {
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(1))));
  for (uint64_t n = 1; n <= 3; ++n) ASSERT_TRUE(Append(ReportEntry("run", 1, IdOf(1), PlainReport(n))));
  JournalEntry next = HelloEntry("run", 1, IdOf(2));
  next.ended_attempt = IdOf(1);
  next.ended_reason = "superseded by attempt 02";
  next.snapshot.reset();
  ASSERT_TRUE(Append(next));
  JournalEntry last = ReportEntry("run", 1, IdOf(2), PlainReport(1));
  last.snapshot = "s";
  ASSERT_TRUE(Append(last));
  std::vector<std::pair<model::AttemptId, uint64_t>> got;
  ASSERT_TRUE(store_->ForEachReport("run", [&](const model::AttemptId& attempt, const model::Report& report) {
    got.emplace_back(attempt, report.sequence);
  }).ok());
  EXPECT_EQ(got, (std::vector<std::pair<model::AttemptId, uint64_t>>{
                     {IdOf(1), 1}, {IdOf(1), 2}, {IdOf(1), 3}, {IdOf(2), 1}}));
}

TEST_F(StoreTest, TakesNothingOfANewRunWithoutASnapshot) {
  EXPECT_FALSE(Append(ReportEntry("run", 1, IdOf(1), PlainReport(1))));
  EXPECT_TRUE(StoredRuns(store_.get()).empty());
  EXPECT_EQ(store_->probe().failures_total.value(), 1u);
  EXPECT_EQ(store_->probe().writable.value(), 1) << "one bad entry is no bad disk";
}

TEST_F(StoreTest, WaitsForASnapshotAfterAHoleAndThenTellsWhatWasLeftBehind) {
  JournalEntry refused = PlainEntry("run", 1, IdOf(1));
  refused.findings = {FindingAt(10000001, 5)};
  ASSERT_FALSE(Append(refused));
  ASSERT_FALSE(Append(ReportEntry("run", 1, IdOf(1), PlainReport(1))));
  ASSERT_TRUE(Append(HelloEntry("other", 2, IdOf(3)))) << "another run goes on";
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(1))));
  ASSERT_TRUE(Append(ReportEntry("run", 1, IdOf(1), PlainReport(2))));
  const auto rows = store_->Findings("run");
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->size(), 1u);
}

TEST_F(StoreTest, AnEntryWithoutAnEventIsAnsweredInItsTurn) {
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(1))));
  ASSERT_TRUE(Append(PlainEntry("run", 1, IdOf(1))));
  EXPECT_TRUE(StoredRuns(store_.get())[0].events.empty());
}

TEST_F(StoreTest, SetsAsideARunThatIsNumberedAnew) {
  JournalEntry old = HelloEntry("run", 1, IdOf(1));
  old.findings = {FindingAt(10000001, 5)};
  ASSERT_TRUE(Append(old));
  ASSERT_TRUE(Append(HelloEntry("run", 2, IdOf(2))));
  EXPECT_EQ(store_->Findings("run")->size(), 0u);
  EXPECT_EQ(store_->Findings("run.unreadable-1")->size(), 1u);
}

TEST_F(StoreTest, AnswersNoAfterStop) {
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(1))));
  store_->Stop();
  EXPECT_FALSE(Append(PlainEntry("run", 1, IdOf(1))));
}

TEST_F(StoreTest, AuditsWordsOfPeopleIntentsAndOrders) {
  JournalEntry entry = HelloEntry("run", 1, IdOf(1));
  entry.audit = engine::AuditNote{"mode", "act", "anna", "we trust it now"};
  entry.interventions = {IntentIn(model::InterventionState::kSent)};
  entry.orders.emplace_back().id = IdOf(9);
  ASSERT_TRUE(Append(entry));
  JournalEntry same = PlainEntry("run", 1, IdOf(1));
  same.interventions = entry.interventions;  // No new state: no new row.
  ASSERT_TRUE(Append(same));
  EXPECT_TRUE(store_->VerifyAudit().ok());
  store_.reset();
  EXPECT_EQ(Edit(DbPath(), "SELECT CASE count(*) WHEN 3 THEN 0 ELSE abs(-9223372036854775808) END FROM audit"), "");
}

TEST_F(StoreTest, TheAuditCannotBeEditedAndShowsWhereItWas) {
  for (int i = 0; i < 3; ++i) {
    JournalEntry entry = HelloEntry("run", 1, IdOf(1));
    entry.audit = engine::AuditNote{"mode", "act", "anna", ""};
    ASSERT_TRUE(Append(entry));
  }
  EXPECT_EQ(Edit(DbPath(), "UPDATE audit SET author='otto' WHERE id=2"), "the audit is append-only");
  EXPECT_EQ(Edit(DbPath(), "DELETE FROM audit WHERE id=3"), "the audit is append-only");
  EXPECT_TRUE(store_->VerifyAudit().ok());
  EXPECT_EQ(Edit(DbPath(), "DROP TRIGGER audit_is_final; UPDATE audit SET author='otto' WHERE id=2"), "");
  EXPECT_EQ(store_->VerifyAudit(), absl::DataLossError("audit row 2 is missing or has been changed"));
  Reopen();  // Said in the log; the daemon goes on.
}

TEST_F(StoreTest, CountsWhatItDoes) {
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(1))));
  ASSERT_TRUE(Append(PlainEntry("run", 1, IdOf(1))));
  EXPECT_EQ(store_->probe().entries_total.value(), 2u);
  EXPECT_EQ(store_->probe().transactions_total.value(), 2u);
  EXPECT_EQ(store_->probe().failures_total.value(), 0u);
  EXPECT_GT(store_->probe().size_bytes.value(), 0);
}

TEST_F(StoreTest, RefusesASecondDaemon) {
  EXPECT_THAT(std::string(OpenError(temp_.path()).message()), HasSubstr("is in use by another gyrostatd"));
}

TEST_F(StoreTest, RefusesADatabaseOfANewerVersion) {
  store_.reset();
  ASSERT_EQ(Edit(DbPath(), "PRAGMA user_version=99"), "");
  const absl::Status status = OpenError(temp_.path());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), DbPath() + " has schema version 99, made by a newer gyrostatd; this one reads up to 4");
}

TEST_F(StoreTest, RefusesAnotherProgramsDatabase) {
  store_.reset();
  std::filesystem::remove(DbPath());
  ASSERT_EQ(Edit(DbPath(), "CREATE TABLE recipes(name)"), "");
  EXPECT_EQ(OpenError(temp_.path()).message(), DbPath() + " is a database, but not one of gyrostat's");
}

TEST_F(StoreTest, RefusesAFileThatIsNoDatabase) {
  store_.reset();
  std::filesystem::remove(DbPath());
  std::ofstream(DbPath()) << std::string(20000, 'x');
  const absl::Status status = OpenError(temp_.path());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("move it away to start with an empty history"));
}

TEST_F(StoreTest, NamesTheFileWhosePagesAreDamaged) {
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(1))));
  store_.reset();
  const auto whole = std::filesystem::file_size(DbPath());
  constexpr uintmax_t kPage = 8192;  // The first one, which says what the file is, stays.
  ASSERT_GT(whole, kPage);
  std::fstream file(DbPath(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(kPage) << std::string(whole - kPage, 'x');
  file.close();
  auto store = Store::Open({.data_dir = temp_.path()});
  const auto take = [](const engine::StoredRun&) { return absl::OkStatus(); };
  const absl::Status status = store.ok() ? (*store)->ForEachRun(take) : store.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), ::testing::StartsWith(DbPath() + " is damaged or no database ("));
  EXPECT_THAT(std::string(status.message()), HasSubstr("move it away"));
}

TEST_F(StoreTest, ForgetsAWordThatCouldNotBeKept) {
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(1))));
  JournalEntry lost = PlainEntry("run", 1, IdOf(1));
  lost.event = "x";
  lost.run_number = 2;  // Of a run that has no snapshot yet: refused.
  lost.findings = {FindingAt(20'000'001, 3)};
  lost.audit = engine::AuditNote{"approve", "run/1", "anna", ""};
  lost.revocable = true;
  EXPECT_FALSE(Append(lost));
  lost.revocable = false;
  lost.findings = {FindingAt(20'000'002, 4)};
  EXPECT_FALSE(Append(lost));
  ASSERT_TRUE(Append(HelloEntry("other", 2, IdOf(2))));
  const auto rows = *store_->Findings("other");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].finding.id, 20'000'002u);
}

TEST_F(StoreTest, NeverCrashesOnATornDatabase) {
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(1))));
  for (uint64_t n = 1; n <= 64; ++n) {
    JournalEntry entry = ReportEntry("run", 1, IdOf(1), PlainReport(n));
    if (n % 16 == 0) entry.snapshot = std::string(10000, 's');
    ASSERT_TRUE(Append(entry));
  }
  store_.reset();
  const testing::TempDir copy;
  const auto whole = std::filesystem::file_size(DbPath());
  for (uintmax_t size = 0; size < whole; size += 4096 - 1) {
    for (const char* log : {"gyrostat.db-wal", "gyrostat.db-shm"}) std::filesystem::remove(copy.File(log));
    std::filesystem::copy_file(DbPath(), copy.File("gyrostat.db"), std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(copy.File("gyrostat.db"), size);
    auto store = Store::Open({.data_dir = copy.path()});
    if (!store.ok()) {
      EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << store.status();
      continue;
    }
    (void)(*store)->ForEachRun([](const engine::StoredRun&) { return absl::OkStatus(); });
    (void)(*store)->ForEachReport("run", [](const auto&, const auto&) {});
  }
}

TEST(StoreModeLimit, OutlivesTheDaemon) {
  const testing::TempDir temp;
  {
    const auto store = OpenStore(temp.path());
    EXPECT_FALSE((*store->ModeLimit()).has_value());
    for (const model::Mode mode : {model::Mode::kAct, model::Mode::kObserve}) {
      JournalEntry entry;
      entry.mode_limit = engine::ModeWord{mode, "anna", "smoke"};
      entry.audit = engine::AuditNote{"mode --all", model::Token(mode), "anna", "smoke"};
      ASSERT_TRUE(AppendAndWait(store.get(), entry));
    }
    EXPECT_TRUE(store->VerifyAudit().ok());
  }
  const auto word = *OpenStore(temp.path())->ModeLimit();
  ASSERT_TRUE(word.has_value());
  EXPECT_EQ(word->mode, model::Mode::kObserve);
  EXPECT_EQ(word->author + word->reason, "annasmoke");
}

}  // namespace
}  // namespace gyrostat::store
