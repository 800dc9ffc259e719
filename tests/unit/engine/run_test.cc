#include "engine/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/finding_book.h"
#include "support/scripted_job.h"

namespace gyrostat::engine {
namespace {

using testing::IdOf;
using testing::PlainHello;
using testing::PlainReport;
using ::testing::HasSubstr;

// What leaves a run, as bytes that can be compared.
std::string BytesOf(const RunOutput& out) {
  base::ByteWriter bytes;
  base::SaveTo(&bytes, out.findings);
  for (const EpisodeChange& change : out.episodes) {
    base::SaveTo(&bytes, change.diagnosis);
    base::SaveTo(&bytes, change.joined);
  }
  base::SaveTo(&bytes, out.policy.decisions);
  base::SaveTo(&bytes, out.policy.changed);
  base::SaveTo(&bytes, out.policy.orders);
  bytes.Put(out.changed);
  bytes.Put(out.acknowledge_sequence);
  bytes.PutString(out.ended_reason);
  bytes.PutString(std::string(out.status.message()));
  return bytes.Take();
}

class RunTest : public ::testing::Test {
 protected:
  const RunOutput& Say(EventBody body) {
    run_.Apply({{now_ms_, now_ms_}, std::move(body)}, &out_);
    return out_;
  }
  const RunOutput& Report(uint64_t n) {
    now_ms_ += 100;
    return Say(ReportEvent{IdOf(1), PlainReport(n)});
  }
  void Open() { Say(HelloEvent{PlainHello("run", IdOf(1))}); }
  // Refused with `text`, and nothing changed.
  void ExpectRefused(EventBody body, absl::StatusCode code, const std::string& text) {
    const std::string before = run_.Save();
    Say(std::move(body));
    EXPECT_EQ(out_.status.code(), code);
    EXPECT_THAT(std::string(out_.status.message()), HasSubstr(text));
    EXPECT_FALSE(out_.changed);
    EXPECT_EQ(run_.Save(), before);
  }

  engine::Run run_{"run", 4, testing::ScriptedOptions()};
  RunOutput out_;
  int64_t now_ms_ = 0;
};

TEST_F(RunTest, TakesReportsAfterAHello) {
  ExpectRefused(ReportEvent{IdOf(1), PlainReport(1)}, absl::StatusCode::kFailedPrecondition,
                "attempt 01010101010101010101010101010101 of run run has not said hello");
  Open();
  EXPECT_TRUE(out_.changed);
  EXPECT_EQ(out_.acknowledge_sequence, 0u);
  EXPECT_EQ(Report(1).acknowledge_sequence, 1u);
  const RunState view = run_.View();
  EXPECT_EQ(view.run, "run");
  EXPECT_EQ(view.attempt, IdOf(1));
  EXPECT_EQ(view.step, 1);
  EXPECT_EQ(view.life, RunLife::kLive);
  EXPECT_EQ(view.reports_total, 1u);
  EXPECT_EQ(view.mode, model::Mode::kAct);
  EXPECT_EQ(view.tau, 30);
  EXPECT_EQ(view.worst_heads[0].value, 8.875f);
  EXPECT_EQ(view.last.Scalar(model::Signal::kLoss), PlainReport(1).Scalar(model::Signal::kLoss));
}

TEST_F(RunTest, AcknowledgesARepeatAndJudgesItOnce) {
  Open();
  for (uint64_t n = 1; n <= 3; ++n) Report(n);
  const std::string before = run_.Save();
  Report(2);
  EXPECT_TRUE(out_.status.ok());
  EXPECT_FALSE(out_.changed);
  EXPECT_EQ(out_.acknowledge_sequence, 3u);
  EXPECT_EQ(run_.Save(), before);
}

TEST_F(RunTest, TellsAReconnectWhatIsIn) {
  Open();
  for (uint64_t n = 1; n <= 3; ++n) Report(n);
  Open();
  EXPECT_EQ(out_.acknowledge_sequence, 3u);
  EXPECT_EQ(run_.View().attempts, 1u);
}

TEST_F(RunTest, GoesOnOverAGapAndCountsIt) {
  Open();
  Report(1);
  EXPECT_EQ(Report(5).acknowledge_sequence, 5u);
  EXPECT_EQ(run_.View().reports_dropped_total, 3u);
}

TEST_F(RunTest, RefusesWhatCannotBeAReport) {
  Open();
  Report(1);
  model::Report wrong = PlainReport(2);
  wrong.MutableArray(model::Signal::kAttnLogitMax).pop_back();
  ExpectRefused(ReportEvent{IdOf(1), wrong}, absl::StatusCode::kInvalidArgument,
                "report 2 of run run: attn_logit_max has 7 values, wanted 8");
  ExpectRefused(ReportEvent{IdOf(1), PlainReport(0)}, absl::StatusCode::kInvalidArgument,
                "sequence 0, wanted 1 or more");
  model::Report later = PlainReport(2);
  later.epoch = 2;
  Say(ReportEvent{IdOf(1), later});
  model::Report earlier = PlainReport(3);
  earlier.epoch = 1;
  ExpectRefused(ReportEvent{IdOf(1), earlier}, absl::StatusCode::kInvalidArgument,
                "report 3 of run run: epoch 1 after epoch 2");
  model::Hello hello = PlainHello("run", IdOf(1));
  ExpectRefused(HelloEvent{hello}, absl::StatusCode::kInvalidArgument, "said hello with epoch 0, wanted 2 or later");
}

TEST_F(RunTest, EndsTheOlderAttemptWhenANewerSaysHello) {
  Open();
  Report(1);
  Say(HelloEvent{PlainHello("run", IdOf(2))});
  EXPECT_EQ(out_.ended_attempt, IdOf(1));
  EXPECT_EQ(out_.ended_reason, "superseded by attempt 02020202020202020202020202020202");
  EXPECT_EQ(out_.acknowledge_sequence, 0u) << "the new attempt counts from 1";
  EXPECT_EQ(run_.View().attempts, 2u);
  EXPECT_EQ(run_.View().attempt, IdOf(2));
}

TEST_F(RunTest, OrdersNeitherOfTwoAttemptsThatBothSpeak) {
  testing::ScriptedJob older(1), newer(2);
  Say(older.Hello());
  Say(older.Report());
  Say(newer.Hello());
  Say(older.Report());
  EXPECT_EQ(out_.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(out_.status.message()), HasSubstr("was superseded by attempt 0202"));
  EXPECT_TRUE(out_.changed) << "that it speaks is remembered";
  size_t orders = 0;
  std::vector<std::string> reasons;
  for (int i = 0; i < 60; ++i) {
    now_ms_ += 100;
    Say(newer.Report());
    orders += out_.policy.orders.size();
    for (const auto& decision : out_.policy.decisions) reasons.push_back(decision.reason);
  }
  EXPECT_EQ(orders, 0u);
  EXPECT_EQ(reasons, (std::vector<std::string>{"two attempts of this run both speak: orders go to neither"}));
  EXPECT_EQ(Say(ApproveEvent{"run/1", "anna", ""}).status.code(), absl::StatusCode::kFailedPrecondition);
  now_ms_ += 60'000;
  Say(newer.Report());
  EXPECT_EQ(out_.policy.orders.size(), 1u) << "the older is silent";
  ASSERT_FALSE(out_.policy.decisions.empty());
  EXPECT_EQ(out_.policy.decisions[0].reason, "the older attempt is silent again: orders may go out");
}

TEST_F(RunTest, ForgetsARivalThatSaysGoodBye) {
  testing::ScriptedJob older(1), newer(2);
  Say(older.Hello());
  Say(newer.Hello());
  Say(older.Report());
  EXPECT_TRUE(Say(ByeEvent{IdOf(1), ""}).changed);
  size_t orders = 0;
  for (int i = 0; i < 60; ++i) orders += Say(newer.Report()).policy.orders.size();
  EXPECT_GT(orders, 0u);
}

TEST_F(RunTest, AStepThatGoesBackIsABreak) {
  Open();
  for (uint64_t n = 1; n <= 100; ++n) Report(n);
  std::vector<model::Finding> findings;
  for (uint64_t n = 101; n <= 105; ++n) {
    model::Report report = PlainReport(n);
    report.SetScalar(model::Signal::kLoss, 20);
    Say(ReportEvent{IdOf(1), report});
    findings.insert(findings.end(), out_.findings.begin(), out_.findings.end());
  }
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].detector, "loss_spike");
  EXPECT_EQ(findings[0].id, 4 * kFindingsPerRun + 1);
  ASSERT_EQ(run_.View().open_findings.size(), 1u);
  model::Report back = PlainReport(106);
  back.step = 50;
  Say(ReportEvent{IdOf(1), back});
  EXPECT_TRUE(out_.status.ok());
  ASSERT_FALSE(out_.findings.empty());
  EXPECT_EQ(out_.findings[0].id, findings[0].id);
  EXPECT_TRUE(out_.findings[0].step_end.has_value());
  EXPECT_TRUE(run_.View().open_findings.empty());
}

TEST_F(RunTest, AnotherModelEndsWhatTheOldOneHadOpen) {
  Open();
  for (uint64_t n = 1; n <= 100; ++n) Report(n);
  for (uint64_t n = 101; n <= 105; ++n) {
    model::Report report = PlainReport(n);
    report.SetScalar(model::Signal::kLoss, 20);
    Say(ReportEvent{IdOf(1), report});
  }
  ASSERT_EQ(run_.View().open_findings.size(), 1u);
  model::Hello hello = PlainHello("run", IdOf(2));
  hello.model.layers = 3;
  Say(HelloEvent{hello});
  EXPECT_TRUE(run_.View().open_findings.empty());
  ASSERT_EQ(out_.findings.size(), 1u);
  EXPECT_TRUE(out_.findings[0].step_end.has_value());
}

TEST_F(RunTest, SaysSilenceOnceAndEndsItWithTheNextReport) {
  Open();
  for (uint64_t n = 1; n <= 20; ++n) Report(n);
  const std::string before = run_.Save();
  EXPECT_FALSE(Say(TickEvent{}).changed);
  EXPECT_EQ(run_.Save(), before) << "a tick without effect is not journalled and must change nothing";
  now_ms_ += 40'000;
  Say(TickEvent{});
  ASSERT_EQ(out_.findings.size(), 1u);
  EXPECT_EQ(out_.findings[0].detector, "silence");
  EXPECT_EQ(run_.View().life, RunLife::kSilent);
  const uint64_t id = out_.findings[0].id;
  now_ms_ += 40'000;
  EXPECT_FALSE(Say(TickEvent{}).changed);
  Report(21);
  ASSERT_EQ(out_.findings.size(), 1u);
  EXPECT_EQ(out_.findings[0].id, id);
  EXPECT_TRUE(out_.findings[0].step_end.has_value());
  EXPECT_EQ(run_.View().life, RunLife::kLive);
  using Totals = std::vector<std::pair<std::string, uint64_t>>;
  EXPECT_EQ(run_.View().findings_total, (Totals{{"silence/warning", 1}}));
}

TEST_F(RunTest, EndsWithAByeAndIsNotMissed) {
  Open();
  for (uint64_t n = 1; n <= 20; ++n) Report(n);
  Say(ByeEvent{IdOf(1), "finished"});
  EXPECT_EQ(out_.ended_attempt, IdOf(1));
  EXPECT_EQ(out_.ended_reason, "finished");
  EXPECT_EQ(run_.View().life, RunLife::kEnded);
  now_ms_ += 1'000'000;
  EXPECT_FALSE(Say(TickEvent{}).changed);
  EXPECT_FALSE(Say(ByeEvent{IdOf(1), "again"}).changed);
  ExpectRefused(ByeEvent{IdOf(9), ""}, absl::StatusCode::kFailedPrecondition, "has not said hello");
  Open();
  EXPECT_EQ(run_.View().life, RunLife::kLive) << "the same attempt may come back";
}

TEST_F(RunTest, RefusesAcksOfStrangersAndOfTheSuperseded) {
  Open();
  Say(HelloEvent{PlainHello("run", IdOf(2))});
  ExpectRefused(AckEvent{IdOf(1), {}}, absl::StatusCode::kFailedPrecondition, "was superseded");
  ExpectRefused(AckEvent{IdOf(7), {}}, absl::StatusCode::kFailedPrecondition, "has not said hello");
}

TEST_F(RunTest, TellsWhichIntentIsUnknown) {
  Open();
  ExpectRefused(ApproveEvent{"run/7", "anna", ""}, absl::StatusCode::kNotFound, "run/7");
  ExpectRefused(RejectEvent{"run/7", "anna", ""}, absl::StatusCode::kNotFound, "run/7");
}

TEST_F(RunTest, TakesNewThresholdsInStride) {
  Open();
  for (uint64_t n = 1; n <= 100; ++n) Report(n);
  RunOptions options = testing::ScriptedOptions();
  options.policy.qk_clip.tau = 20;
  options.detect.silence.silent_after_ms_min = 1000;
  Say(OptionsEvent{options});
  EXPECT_TRUE(out_.changed);
  EXPECT_EQ(run_.View().tau, 20);
  model::Report spike = PlainReport(101);
  spike.SetScalar(model::Signal::kLoss, 50);
  Say(ReportEvent{IdOf(1), spike});
  EXPECT_FALSE(out_.findings.empty()) << "the baseline has outlived the reload";
  now_ms_ += 5000;
  Say(TickEvent{});
  ASSERT_FALSE(out_.findings.empty());
  EXPECT_EQ(out_.findings[0].detector, "silence") << "the new wait counts";
}

TEST_F(RunTest, TimeNeverGoesBack) {
  Open();
  now_ms_ = 50'000;
  Report(1);
  now_ms_ = 0;
  Report(2);
  EXPECT_EQ(run_.last_mono_ms(), 50'100);
}

TEST_F(RunTest, RefusesEveryTruncationAndIsThenAsNew) {
  Open();
  for (uint64_t n = 1; n <= 5; ++n) Report(n);
  const std::string bytes = run_.Save();
  for (size_t size = 0; size < bytes.size(); size += 7) {
    engine::Run other("other", 9, {});
    EXPECT_FALSE(other.Load(std::string_view(bytes).substr(0, size))) << "at " << size;
    EXPECT_EQ(other.name(), "other");
    EXPECT_EQ(other.View().attempts, 0u);
  }
  engine::Run other("other", 9, {});
  EXPECT_TRUE(other.Load(bytes));
  EXPECT_EQ(other.name(), "run");
  EXPECT_EQ(other.Save(), bytes);
}

// The whole life of a run, straight.
struct Recorded {
  std::vector<Event> events;
  std::vector<std::string> outputs;
  std::string end;
};
const Recorded& Straight() {
  static const Recorded recorded = [] {
    Recorded r;
    Run actor(testing::kScriptedRun, 1, testing::ScriptedOptions());
    r.events = testing::Script(&actor).Record();
    Run run(testing::kScriptedRun, 1, testing::ScriptedOptions());
    RunOutput out;
    for (const Event& event : r.events) {
      run.Apply(event, &out);
      r.outputs.push_back(BytesOf(out));
    }
    r.end = run.Save();
    EXPECT_EQ(r.end, actor.Save());
    return r;
  }();
  return recorded;
}

TEST(RunScript, HasEverythingInIt) {
  engine::Run run(testing::kScriptedRun, 1, testing::ScriptedOptions());
  RunOutput out;
  std::set<std::string> detectors, states;
  size_t orders = 0, repeats = 0, refused = 0, episodes = 0;
  for (const Event& event : Straight().events) {
    run.Apply(event, &out);
    for (const auto& finding : out.findings) detectors.insert(finding.detector);
    for (const auto& intent : out.policy.changed) states.insert(model::Token(intent.state));
    episodes += out.episodes.size();
    orders += out.policy.orders.size();
    repeats += !out.changed && out.acknowledge_sequence > 0;
    refused += !out.status.ok();
  }
  for (const char* detector : {"attn_logit", "loss_spike", "grad_spike", "nonfinite", "silence"})
    EXPECT_TRUE(detectors.contains(detector)) << detector;
  for (const char* state : {"proposed", "approved", "sent", "applied", "judged"})
    EXPECT_TRUE(states.contains(state)) << state;
  EXPECT_GT(episodes, 3u);
  EXPECT_GT(orders, 10u);
  EXPECT_EQ(repeats, 1u);
  EXPECT_EQ(refused, 1u);
}

TEST(RunScript, ContinuesTheSameFromASnapshotAtEveryEvent) {
  const Recorded& straight = Straight();
  auto run = std::make_unique<engine::Run>(testing::kScriptedRun, 1, testing::ScriptedOptions());
  RunOutput out;
  for (size_t i = 0; i < straight.events.size(); ++i) {
    const std::string bytes = run->Save();
    run = std::make_unique<engine::Run>("another", 2, RunOptions{});
    ASSERT_TRUE(run->Load(bytes)) << i;
    ASSERT_EQ(run->Save(), bytes) << i;
    run->Apply(straight.events[i], &out);
    ASSERT_EQ(BytesOf(out), straight.outputs[i]) << "event " << i;
  }
  EXPECT_EQ(run->Save(), straight.end);
}

TEST(RunScript, NeedsOnlyTheEventsThatChangedSomething) {
  const Recorded& straight = Straight();
  engine::Run run(testing::kScriptedRun, 1, testing::ScriptedOptions());
  engine::Run replayed(testing::kScriptedRun, 1, testing::ScriptedOptions());
  RunOutput out, again;
  for (const Event& event : straight.events) {
    run.Apply(event, &out);
    if (!out.changed) continue;
    Event decoded;
    ASSERT_TRUE(Decode(Encode(event), &decoded));
    replayed.Apply(decoded, &again);
    ASSERT_EQ(BytesOf(out), BytesOf(again));
  }
  EXPECT_EQ(replayed.Save(), straight.end);
}

}  // namespace
}  // namespace gyrostat::engine
