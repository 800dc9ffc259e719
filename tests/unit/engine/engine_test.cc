#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/mode_limit.h"
#include "support/engine_fakes.h"
#include "support/manual_clock.h"
#include "support/scripted_job.h"

namespace gyrostat::engine {
namespace {

using testing::Await;
using testing::FakeHistory;
using testing::FakeJournal;
using testing::FakeOutbox;
using testing::IdOf;
using testing::PlainHello;
using testing::PlainReport;
using testing::PostAndWait;
using testing::PostAsync;
using ::testing::HasSubstr;

using Acknowledged = std::vector<std::pair<std::string, uint64_t>>;

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() {
    options_.shards = 2;
    options_.tick = base::Milliseconds(1);
    options_.run = testing::ScriptedOptions();
  }
  void Make() { engine_ = std::make_unique<Engine>(options_, &journal_, &outbox_, &clock_); }
  void Start() {
    Make();
    engine_->Start();
  }
  absl::Status Hello(const std::string& run, uint8_t attempt = 1) {
    return PostAndWait(engine_.get(), run, HelloEvent{PlainHello(run, IdOf(attempt))});
  }
  absl::Status Report(const std::string& run, uint64_t n) {
    clock_.Advance(base::Milliseconds(100));
    return PostAndWait(engine_.get(), run, ReportEvent{IdOf(1), PlainReport(n)});
  }
  absl::Status SayForAll(model::Mode mode) {
    const auto said = std::make_shared<std::promise<absl::Status>>();
    engine_->SetModeLimit({mode, "anna", "smoke"}, [said](const absl::Status& s) { said->set_value(s); });
    return Await(said->get_future());
  }
  // Posts reports of a job whose head runs away until the first order is in the journal.
  void ReportUntilOrdered(testing::ScriptedJob* job) {
    for (int i = 0; i < 60; ++i) {
      PostAsync(engine_.get(), testing::kScriptedRun, job->Report());
      ASSERT_TRUE(journal_.WaitForEntries(static_cast<size_t>(i) + 2));
      if (!journal_.entries().back().orders.empty()) return;
    }
    FAIL() << "no order";
  }

  testing::ManualClock clock_;
  FakeJournal journal_;
  FakeOutbox outbox_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;  // Last: it uses the others until it is gone.
};

TEST_F(EngineTest, AnswersOnceTheEventIsDurableAndSeen) {
  Start();
  ASSERT_TRUE(Hello("run").ok());
  ASSERT_TRUE(Report("run", 1).ok());
  const auto view = engine_->FindRun("run");
  ASSERT_TRUE(view.ok());
  EXPECT_EQ((*view)->step, 1);
  EXPECT_EQ(outbox_.acknowledged(), (Acknowledged{{"run", 1}}));
  EXPECT_EQ(engine_->Runs().size(), 1u);
  EXPECT_EQ(engine_->probe().events_total.value(), 2u);
  EXPECT_EQ(engine_->probe().reports_total.value(), 1u);
}

TEST_F(EngineTest, SendsNothingBeforeItIsWritten) {
  journal_.SetAnswer(FakeJournal::Answer::kWait);
  Start();
  testing::ScriptedJob job(1);
  PostAsync(engine_.get(), testing::kScriptedRun, job.Hello());
  ReportUntilOrdered(&job);
  EXPECT_TRUE(outbox_.orders().empty());
  EXPECT_TRUE(outbox_.acknowledged().empty());
  journal_.Settle(true);
  ASSERT_EQ(outbox_.orders().size(), 1u);
  EXPECT_EQ(outbox_.orders()[0].id, journal_.entries().back().orders[0].id);
  EXPECT_FALSE(outbox_.acknowledged().empty());
  EXPECT_EQ(engine_->probe().orders_sent_total.value(), 1u);
  journal_.SetAnswer(FakeJournal::Answer::kYes);
}

TEST_F(EngineTest, NeverSendsAnOrderThatCouldNotBeWritten) {
  journal_.SetAnswer(FakeJournal::Answer::kWait);
  Start();
  testing::ScriptedJob job(1);
  PostAsync(engine_.get(), testing::kScriptedRun, job.Hello());
  ReportUntilOrdered(&job);
  journal_.Settle(false);
  EXPECT_TRUE(outbox_.orders().empty());
  EXPECT_TRUE(outbox_.acknowledged().empty());
  EXPECT_GT(engine_->probe().journal_failures_total.value(), 0u);
  journal_.SetAnswer(FakeJournal::Answer::kYes);
}

TEST_F(EngineTest, GoesOnWhileTheJournalFailsAndMendsItWithASnapshot) {
  Start();
  ASSERT_TRUE(Hello("run").ok());
  journal_.SetAnswer(FakeJournal::Answer::kNo);
  for (uint64_t n = 1; n <= 3; ++n) {
    const absl::Status status = Report("run", n);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr("run run: the journal could not keep this"));
  }
  EXPECT_EQ((*engine_->FindRun("run"))->step, 3) << "detection goes on";
  EXPECT_TRUE(outbox_.acknowledged().empty());
  const size_t before = journal_.kept();
  journal_.SetAnswer(FakeJournal::Answer::kYes);
  // By itself, at a tick: the run may say nothing more. Its reports are acknowledged, or a client with a full window
  // would wait for ever.
  ASSERT_TRUE(journal_.WaitForKept(before + 1));
  ASSERT_TRUE(Report("run", 4).ok());
  EXPECT_EQ(outbox_.acknowledged(), (Acknowledged{{"run", 3}, {"run", 4}}));
  const auto entries = journal_.entries();
  EXPECT_TRUE(entries[entries.size() - 2].snapshot.has_value());
  for (const auto& entry : entries) EXPECT_TRUE(entry.run_number == 1 && entry.run == "run");
}

TEST_F(EngineTest, DoesNotDoWhatItSaysItDidNot) {
  options_.run.policy.mode = model::Mode::kAdvise;
  Start();
  testing::ScriptedJob job(1);
  ASSERT_TRUE(PostAndWait(engine_.get(), testing::kScriptedRun, job.Hello()).ok());
  const auto view = [&] { return *engine_->FindRun(testing::kScriptedRun); };
  for (int i = 0; i < 60 && view()->interventions_pending == 0; ++i)
    (void)PostAndWait(engine_.get(), testing::kScriptedRun, job.Report());
  ASSERT_EQ(view()->interventions_pending, 1u);
  const std::string id = view()->open_interventions.at(0).id;
  const auto say = [&](EventBody body) { return PostAndWait(engine_.get(), testing::kScriptedRun, std::move(body)); };

  journal_.SetAnswer(FakeJournal::Answer::kNo);
  const std::string why = ": the journal could not keep it; see the daemon's log";
  EXPECT_EQ(say(ApproveEvent{id, "anna", ""}), absl::AbortedError(id + " is not approved" + why));
  EXPECT_EQ(say(RejectEvent{id, "anna", ""}), absl::AbortedError(id + " is not rejected" + why));
  EXPECT_EQ(say(ProposeEvent{{.kind = model::InterventionKind::kHalt, .author = "anna"}}),
            absl::FailedPreconditionError("halt is not proposed: halt is not on the job's allow-list"));
  EXPECT_EQ(say(ModeEvent{model::Mode::kAct, "anna", ""}),
            absl::AbortedError("run " + std::string(testing::kScriptedRun) + ": mode act is not set" + why));
  EXPECT_TRUE(journal_.entries().back().revocable || !journal_.entries().back().audit);
  EXPECT_EQ(view()->mode, model::Mode::kAdvise);
  EXPECT_EQ(view()->interventions_pending, 1u);

  journal_.SetAnswer(FakeJournal::Answer::kYes);
  ASSERT_TRUE(say(job.Report()).ok());
  EXPECT_EQ(view()->mode, model::Mode::kAdvise);
  EXPECT_EQ(view()->interventions_pending, 1u);
  EXPECT_TRUE(outbox_.orders().empty()) << "nothing of it is done later";
  EXPECT_TRUE(say(ApproveEvent{id, "anna", ""}).ok()) << "and it can be said again";
  EXPECT_EQ(view()->interventions_pending, 0u);
}

TEST_F(EngineTest, ShowsAWordOnlyOnceItIsOnDisk) {
  options_.run.policy.mode = model::Mode::kObserve;
  Start();
  ASSERT_TRUE(Hello("run").ok());
  journal_.SetAnswer(FakeJournal::Answer::kWait);
  const size_t before = journal_.entries().size();
  auto answer = PostAsync(engine_.get(), "run", ModeEvent{model::Mode::kAct, "anna", ""});
  auto later = PostAsync(engine_.get(), "run", ReportEvent{IdOf(1), PlainReport(1)});
  ASSERT_TRUE(journal_.WaitForEntries(before + 1));
  EXPECT_NE((*engine_->FindRun("run"))->mode, model::Mode::kAct);
  EXPECT_EQ(journal_.entries().size(), before + 1) << "the run stands still";
  journal_.SetAnswer(FakeJournal::Answer::kYes);
  EXPECT_TRUE(Await(std::move(answer)).ok());
  EXPECT_EQ((*engine_->FindRun("run"))->mode, model::Mode::kAct);
  EXPECT_TRUE(Await(std::move(later)).ok());
}

TEST_F(EngineTest, StopsAtOnceAndSaysThatItIsNotOnDisk) {
  options_.run.policy.mode = model::Mode::kAct;
  Start();
  ASSERT_TRUE(Hello("run").ok());
  journal_.SetAnswer(FakeJournal::Answer::kNo);
  EXPECT_EQ(PostAndWait(engine_.get(), "run", ModeEvent{model::Mode::kObserve, "anna", ""}),
            ModeNotKept("run run", model::Mode::kObserve, true));
  EXPECT_EQ((*engine_->FindRun("run"))->mode, model::Mode::kObserve);
  journal_.SetAnswer(FakeJournal::Answer::kYes);
}

TEST_F(EngineTest, AcknowledgesARepeatOnlyInItsTurn) {
  Start();
  ASSERT_TRUE(Hello("run").ok());
  journal_.SetAnswer(FakeJournal::Answer::kWait);
  PostAsync(engine_.get(), "run", ReportEvent{IdOf(1), PlainReport(1)});
  PostAsync(engine_.get(), "run", ReportEvent{IdOf(1), PlainReport(1)});
  ASSERT_TRUE(journal_.WaitForEntries(3));
  EXPECT_TRUE(outbox_.acknowledged().empty());
  EXPECT_TRUE(journal_.entries().back().event.empty());
  journal_.Settle(true);
  EXPECT_EQ(outbox_.acknowledged(), (Acknowledged{{"run", 1}, {"run", 1}}));
  EXPECT_EQ(engine_->probe().reports_repeated_total.value(), 1u);
  journal_.SetAnswer(FakeJournal::Answer::kYes);
}

TEST_F(EngineTest, TellsAHelloWhatIsInBeforeItAnswers) {
  Start();
  ASSERT_TRUE(Hello("run").ok());
  ASSERT_TRUE(Report("run", 1).ok());
  ASSERT_TRUE(Report("run", 2).ok());
  ASSERT_TRUE(Hello("run").ok());
  EXPECT_EQ(outbox_.acknowledged().back(), (std::pair<std::string, uint64_t>("run", 2)));
  EXPECT_EQ(outbox_.acknowledged().size(), 3u);
}

TEST_F(EngineTest, RefusesWithTheRunsOwnSentence) {
  Start();
  ASSERT_TRUE(Hello("run").ok());
  model::Report wrong = PlainReport(1);
  wrong.MutableArray(model::Signal::kAttnLogitMax).pop_back();
  const absl::Status status = PostAndWait(engine_.get(), "run", ReportEvent{IdOf(1), wrong});
  EXPECT_EQ(status.message(), "report 1 of run run: attn_logit_max has 7 values, wanted 8 (layers x heads = 2 x 4)");
  EXPECT_EQ(engine_->probe().reports_refused_total.value(), 1u);
  EXPECT_EQ(journal_.entries().size(), 1u);
}

TEST_F(EngineTest, KeepsOfARivalOnlyThatItSpoke) {
  Start();
  ASSERT_TRUE(Hello("run", 1).ok());
  ASSERT_TRUE(Hello("run", 2).ok());
  EXPECT_EQ(Report("run", 1).code(), absl::StatusCode::kFailedPrecondition);
  Event event;
  ASSERT_EQ(journal_.entries().size(), 3u);
  ASSERT_TRUE(Decode(journal_.entries().back().event, &event));
  EXPECT_EQ(std::get<ReportEvent>(event.body).report.sequence, 0u);
}

TEST_F(EngineTest, KnowsOnlyRunsThatSaidHello) {
  Start();
  const absl::Status unknown = absl::NotFoundError("run nobody is not known");
  EXPECT_EQ(PostAndWait(engine_.get(), "nobody", ReportEvent{IdOf(1), PlainReport(1)}), unknown);
  EXPECT_EQ(PostAndWait(engine_.get(), "nobody", ModeEvent{model::Mode::kAct, "anna", ""}), unknown);
  EXPECT_EQ(PostAndWait(engine_.get(), "nobody", ApproveEvent{"nobody/1", "anna", ""}), unknown);
  EXPECT_EQ(engine_->FindRun("nobody").status(), unknown);
  EXPECT_EQ(Engine::RunOfIntent("my.run:a/12"), "my.run:a");
  EXPECT_EQ(Engine::RunOfIntent("12"), "");
}

TEST_F(EngineTest, TakesNoMoreRunsThanItMay) {
  options_.runs_max = 2;
  Start();
  ASSERT_TRUE(Hello("a").ok());
  ASSERT_TRUE(Hello("b").ok());
  EXPECT_EQ(Hello("c"), absl::ResourceExhaustedError("run c is not taken: this daemon holds 2 runs already"));
  EXPECT_TRUE(Hello("a", 2).ok()) << "those it has go on";
}

TEST_F(EngineTest, RefusesWhatItsQueueCannotHold) {
  options_.queue_capacity_events = 16;
  options_.shards = 1;
  Make();  // Not started: nothing is taken out.
  std::vector<std::future<absl::Status>> answers;
  answers.push_back(PostAsync(engine_.get(), "run", HelloEvent{PlainHello("run", IdOf(1))}));
  for (uint64_t n = 1; n <= 16; ++n)
    answers.push_back(PostAsync(engine_.get(), "run", ReportEvent{IdOf(1), PlainReport(n)}));
  EXPECT_EQ(Await(std::move(answers.back())),
            absl::ResourceExhaustedError("run run: 16 events wait already; send it again"));
  EXPECT_EQ(engine_->probe().queue_full_total.value(), 1u);
  answers.pop_back();
  EXPECT_EQ(Await(PostAsync(engine_.get(), "new", HelloEvent{PlainHello("new", IdOf(1))})).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Await(PostAsync(engine_.get(), "new", ByeEvent{IdOf(1), ""})).code(), absl::StatusCode::kNotFound)
      << "the name is free again";
  engine_->Stop();
  for (auto& answer : answers) EXPECT_TRUE(Await(std::move(answer)).ok()) << "Stop applies what waits";
  EXPECT_EQ(Hello("late"), absl::UnavailableError("the daemon is stopping"));
}

TEST_F(EngineTest, SaysSilenceByTheClockItWasGiven) {
  Start();
  ASSERT_TRUE(Hello("run").ok());
  for (uint64_t n = 1; n <= 10; ++n) ASSERT_TRUE(Report("run", n).ok());
  clock_.Advance(base::Milliseconds(100'000));
  ASSERT_TRUE(journal_.WaitForEntries(12));
  const auto entry = journal_.entries().back();
  ASSERT_EQ(entry.findings.size(), 1u);
  EXPECT_EQ(entry.findings[0].detector, "silence");
  EXPECT_FALSE(entry.event.empty());
}

TEST_F(EngineTest, GivesNewThresholdsToRunsOldAndNew) {
  Start();
  ASSERT_TRUE(Hello("old").ok());
  RunOptions options = testing::ScriptedOptions();
  options.policy.qk_clip.tau = 17;
  engine_->SetRunOptions(options);
  ASSERT_TRUE(journal_.WaitForEntries(2));
  Event event;
  ASSERT_TRUE(Decode(journal_.entries().back().event, &event));
  EXPECT_EQ(std::get<OptionsEvent>(event.body).options.policy.qk_clip.tau, 17);
  ASSERT_TRUE(Hello("new").ok());
  EXPECT_EQ((*engine_->FindRun("old"))->tau, 17);
  EXPECT_EQ((*engine_->FindRun("new"))->tau, 17);
  EXPECT_EQ(journal_.entries().size(), 3u);
}

TEST_F(EngineTest, SnapshotsAtItsPace) {
  options_.snapshot_every_reports = 4;
  Start();
  ASSERT_TRUE(Hello("run").ok());
  for (uint64_t n = 1; n <= 9; ++n) ASSERT_TRUE(Report("run", n).ok());
  std::vector<size_t> with_snapshot;
  const auto entries = journal_.entries();
  for (size_t i = 0; i < entries.size(); ++i)
    if (entries[i].snapshot) with_snapshot.push_back(i);
  EXPECT_EQ(with_snapshot, (std::vector<size_t>{0, 4, 8}));
}

TEST_F(EngineTest, BringsRunsBackAndNumbersNewOnesAbove) {
  engine::Run kept("kept", 5, testing::ScriptedOptions());
  RunOutput out;
  kept.Apply({{7000, 0}, HelloEvent{PlainHello("kept", IdOf(1))}}, &out);
  FakeHistory history;
  history.runs.push_back({"kept", 5, kept.Save(), {Encode({{7100, 0}, ReportEvent{IdOf(1), PlainReport(1)}})}});
  history.runs.push_back({"broken", 8, "no snapshot", {}});
  Make();
  ASSERT_TRUE(engine_->Restore(&history).ok());
  ASSERT_EQ(engine_->Runs().size(), 1u);
  EXPECT_EQ((*engine_->FindRun("kept"))->step, 1);
  engine_->Start();
  ASSERT_TRUE(Report("kept", 2).ok());
  EXPECT_EQ(journal_.entries().back().at.mono_ms, 7100 + 100) << "stamps go on where they were";
  EXPECT_FALSE(journal_.entries().back().snapshot.has_value());
  ASSERT_TRUE(Hello("broken").ok());
  EXPECT_EQ(journal_.entries().back().run_number, 9u);
}

TEST_F(EngineTest, JudgesByTodaysOptionsOnlyWhatComesAfterARestart) {
  RunOptions old = testing::ScriptedOptions();
  old.policy.qk_clip.tau = 99;
  engine::Run kept("kept", 1, old);
  RunOutput out;
  kept.Apply({{0, 0}, HelloEvent{PlainHello("kept", IdOf(1))}}, &out);
  FakeHistory history;
  history.runs.push_back({"kept", 1, kept.Save(), {}});
  Make();
  ASSERT_TRUE(engine_->Restore(&history).ok());
  EXPECT_EQ((*engine_->FindRun("kept"))->tau, 99);
  engine_->Start();
  ASSERT_TRUE(journal_.WaitForEntries(1));
  Event event;
  ASSERT_TRUE(Decode(journal_.entries()[0].event, &event));
  EXPECT_TRUE(std::holds_alternative<OptionsEvent>(event.body)) << "the change is on record";
}

TEST_F(EngineTest, BeginsNoRunAboveWhatWasSaidForAll) {
  options_.run.policy.mode = model::Mode::kAct;
  Start();
  ASSERT_TRUE(SayForAll(model::Mode::kObserve).ok());
  const auto entry = journal_.entries().back();
  ASSERT_TRUE(entry.mode_limit && entry.audit);
  EXPECT_EQ(entry.audit->author, "anna");
  RunOptions reloaded = options_.run;
  reloaded.policy.qk_clip.tau = 17;
  engine_->SetRunOptions(reloaded);
  ASSERT_TRUE(Hello("run").ok());
  EXPECT_EQ((*engine_->FindRun("run"))->mode, model::Mode::kObserve);
  EXPECT_EQ((*engine_->FindRun("run"))->tau, 17);
  ASSERT_TRUE(Hello("run", 2).ok());
  EXPECT_EQ((*engine_->FindRun("run"))->mode, model::Mode::kObserve) << "a new attempt keeps it";
}

TEST_F(EngineTest, StopsAllAlthoughTheJournalFailsAndWritesItLater) {
  options_.run.policy.mode = model::Mode::kAct;
  Start();
  journal_.SetAnswer(FakeJournal::Answer::kNo);
  EXPECT_EQ(SayForAll(model::Mode::kObserve), ModeNotKept("runs to come", model::Mode::kObserve, true));
  EXPECT_EQ(engine_->start_mode(), model::Mode::kObserve);
  const size_t before = journal_.kept();
  journal_.SetAnswer(FakeJournal::Answer::kYes);
  ASSERT_TRUE(journal_.WaitForKept(before + 1)) << "at a tick";
  EXPECT_TRUE(journal_.entries().back().mode_limit);
}

TEST_F(EngineTest, RemembersAfterARestartWhatWasSaidForAll) {
  RunOptions of_the_file = options_.run;
  of_the_file.policy.mode = model::Mode::kAct;
  RunOptions at_birth = of_the_file;
  at_birth.policy.mode = model::Mode::kObserve;
  engine::Run kept("kept", 1, at_birth);
  RunOutput out;
  kept.Apply({{0, 0}, HelloEvent{PlainHello("kept", IdOf(1))}}, &out);
  FakeHistory history;
  history.runs.push_back({"kept", 1, kept.Save(), {}});
  history.limit = ModeWord{model::Mode::kObserve, "anna", "smoke"};
  options_.run = of_the_file;
  Make();
  ASSERT_TRUE(engine_->Restore(&history).ok());
  engine_->Start();
  EXPECT_EQ(engine_->start_mode(), model::Mode::kObserve);
  ASSERT_TRUE(Hello("kept", 2).ok());
  EXPECT_EQ((*engine_->FindRun("kept"))->mode, model::Mode::kObserve) << "its mode is its own";
  ASSERT_TRUE(Hello("new").ok());
  EXPECT_EQ((*engine_->FindRun("new"))->mode, model::Mode::kObserve);
}

TEST_F(EngineTest, ReportsAStoreThatCannotBeRead) {
  FakeHistory history;
  history.status = absl::DataLossError("gyrostat.db is damaged");
  Make();
  EXPECT_EQ(engine_->Restore(&history), history.status);
}

TEST_F(EngineTest, KeepsEachRunsOrderUnderManyThreads) {
  Start();
  static constexpr uint64_t kReports = 200;
  std::vector<std::thread> clients;
  for (int c = 0; c < 6; ++c)
    clients.emplace_back([this, c] {
      const std::string run = "run-" + std::to_string(c);
      ASSERT_TRUE(Hello(run).ok());
      std::vector<std::future<absl::Status>> answers;
      for (uint64_t n = 1; n <= kReports; ++n)
        answers.push_back(PostAsync(engine_.get(), run, ReportEvent{IdOf(1), PlainReport(n)}));
      for (auto& answer : answers) ASSERT_TRUE(Await(std::move(answer)).ok());
      EXPECT_EQ((*engine_->FindRun(run))->last.sequence, kReports);
    });
  for (int i = 0; i < 20; ++i) {
    engine_->SetRunOptions(testing::ScriptedOptions());
    for (const auto& view : engine_->Runs()) EXPECT_LE(view->last.sequence, kReports);
  }
  for (std::thread& client : clients) client.join();
  engine_->Stop();
  std::map<std::string, uint64_t> last;
  for (const auto& [run, sequence] : outbox_.acknowledged()) EXPECT_EQ(sequence, ++last[run]);
  EXPECT_EQ(last.size(), 6u);
  EXPECT_EQ(engine_->probe().reports_total.value(), 6 * kReports);
}

}  // namespace
}  // namespace gyrostat::engine
