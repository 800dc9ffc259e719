// Local clipping: the client is told tau once, clips by itself, and tells what it did.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness.h"

namespace gyrostat::policy {
namespace {

using model::ClipWhere;
using model::InterventionState;
using model::Mode;
using ::testing::HasSubstr;

const std::vector<double> kCalm = {10, 11, 12, 13};
const std::vector<double> kHot = {10, 60, 12, 13};

PolicyOptions Local(Mode mode) {
  PolicyOptions options = Options(mode);
  options.qk_clip.where = ClipWhere::kLocal;
  return options;
}

// A report that tells of a local clip of L0 H1 at the boundary before it.
model::Report Told(Loop* loop, const std::vector<double>& unclipped, uint64_t version_before, int64_t ticks) {
  model::Report report = loop->client.Forward(unclipped);
  report.local_clips = {.boundary = report.boundary - 1,
                        .ledger_version_before = version_before,
                        .ledger_version_after = version_before + 1,
                        .applied = {{0}, {1}, {ticks}}};
  report.ledger_version = version_before + 1;
  return report;
}

model::Ack AckOf(const model::Order& order, model::AckOutcome outcome, model::Boundary boundary) {
  model::Ack ack;
  ack.order_id = order.id;
  ack.outcome = outcome;
  ack.boundary = boundary;
  return ack;
}

TEST(Local, IsToldOnceAnAttempt) {
  Loop loop(Local(Mode::kAct));
  loop.SayHello();
  ASSERT_EQ(loop.all.orders.size(), 1u);
  const model::Order& order = loop.all.orders[0];
  EXPECT_EQ(order.where, ClipWhere::kLocal);
  EXPECT_EQ(order.tau, 30);
  EXPECT_EQ(order.variant, model::ClipVariant::kMha);
  EXPECT_EQ(order.split, 0.5);
  EXPECT_TRUE(order.entries.empty());
  EXPECT_EQ(loop.LastDecision(), "the client was told to clip by itself at tau 30");
  loop.Steps(50, kHot);
  EXPECT_EQ(loop.all.orders.size(), 1u);
  EXPECT_TRUE(loop.all.changed.empty()) << "an intent opens when something was clipped";
}

TEST(Local, CountsEachBoundaryThatClippedAsAnOrder) {
  Loop loop(Local(Mode::kAct));
  loop.SayHello();
  loop.Step(kHot);
  loop.Report(Told(&loop, kHot, 0, 700000));
  loop.Report(Told(&loop, kHot, 1, 50000));
  const model::Intervention intent = loop.Intent(1);
  EXPECT_EQ(intent.state, InterventionState::kApplied);
  EXPECT_EQ(intent.reason, "1 head clipped by the client itself, first L0 H1, above tau 30.");
  EXPECT_EQ(intent.orders, 2u);
  EXPECT_EQ(intent.orders_applied, 2u);
  EXPECT_EQ(intent.heads, 1u);
  EXPECT_EQ(intent.step_applied, 101);
  EXPECT_EQ(intent.median_delay_boundaries, 0);
  EXPECT_EQ(loop.policy.ledger().At(0, 1), 750000);
  EXPECT_EQ(loop.policy.ledger().version(), 2u);
  loop.Steps(320, kCalm);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kJudged);
  EXPECT_EQ(loop.Intent(1).outcome, model::Outcome::kInconclusive) << "no report was of a forward under the clip";
  EXPECT_EQ(loop.all.orders.size(), 1u) << "the client still has its tau";
}

TEST(Local, IsStoppedByObserve) {
  Loop loop(Local(Mode::kAct));
  loop.SayHello();
  loop.Steps(2, kHot);
  loop.Report(Told(&loop, kHot, 0, 1000));
  loop.SetMode(Mode::kObserve);
  ASSERT_EQ(loop.all.orders.size(), 2u);
  EXPECT_EQ(loop.all.orders[1].tau, 0);
  EXPECT_EQ(loop.all.orders[1].where, ClipWhere::kLocal);
  EXPECT_THAT(loop.LastDecision(), HasSubstr("was told to stop clipping by itself: mode is observe"));
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kJudged);
  // What the client did before it heard of it still belongs to the intent.
  loop.Report(Told(&loop, kHot, 1, 1000));
  EXPECT_EQ(loop.Intent(1).orders_applied, 2u);
  EXPECT_TRUE(loop.Intent(2).id.empty());
  EXPECT_EQ(loop.all.orders.size(), 2u) << "it was told already";
  loop.SetMode(Mode::kAct);
  EXPECT_EQ(loop.all.orders.back().tau, 30);
}

TEST(Local, IsToldToStopWhenItClipsUnbidden) {
  Loop loop(Local(Mode::kObserve));
  loop.SayHello();
  EXPECT_TRUE(loop.all.orders.empty());
  loop.Step(kHot);
  loop.Report(Told(&loop, kHot, 0, 1000));
  ASSERT_EQ(loop.all.orders.size(), 1u);
  EXPECT_EQ(loop.all.orders[0].tau, 0);
  EXPECT_EQ(loop.Intent(1).reason, "1 head clipped by the client itself, first L0 H1, unbidden.");
}

TEST(Local, WaitsForApprovalInAdviseAndStopsWhenTheIntentEnds) {
  Loop loop(Local(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(3, kHot);
  EXPECT_TRUE(loop.all.orders.empty());
  ASSERT_TRUE(loop.Approve("r/1").ok());
  ASSERT_EQ(loop.all.orders.size(), 1u);
  EXPECT_EQ(loop.all.orders[0].tau, 30);
  EXPECT_EQ(loop.all.orders[0].intent_id, "r/1");
  loop.Report(Told(&loop, kHot, 0, 1000));
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kApplied);
  loop.Steps(320, kCalm);
  EXPECT_FALSE(model::IsOpen(loop.Intent(1).state));
  ASSERT_EQ(loop.all.orders.size(), 2u);
  EXPECT_EQ(loop.all.orders[1].tau, 0) << "the approval ended with the intent";
}

TEST(Local, IsNotToldToAJobThatForbidsIt) {
  Loop loop(Local(Mode::kAct));
  loop.client.hello.allow.clear();
  loop.SayHello();
  loop.Steps(2, kHot);
  EXPECT_TRUE(loop.all.orders.empty());
  EXPECT_EQ(loop.LastDecision(), "qk_clip is not on the job's allow-list");
}

TEST(Local, TakesARefusalForAnAnswer) {
  Loop loop(Local(Mode::kAct));
  loop.SayHello();
  model::Ack ack = AckOf(loop.all.orders[0], model::AckOutcome::kRefused, 1);
  ack.reason = "the trainer has no actuator";
  loop.Ack(ack);
  EXPECT_EQ(loop.LastDecision(), "the client answered refused to local clipping: the trainer has no actuator");
  loop.Steps(100, kHot);
  EXPECT_EQ(loop.all.orders.size(), 1u);
  loop.client.hello.attempt.bytes[0] = 2;
  loop.SayHello();
  EXPECT_EQ(loop.all.orders.size(), 2u) << "another attempt may be another program";
}

TEST(Local, ThatFailsHalfWayEndsAllOrdering) {
  Loop loop(Local(Mode::kAct));
  loop.SayHello();
  loop.Steps(2, kHot);
  loop.Report(Told(&loop, kHot, 0, 1000));
  model::Ack ack = AckOf(loop.all.orders[0], model::AckOutcome::kFailed, 3);
  ack.reason = "the device is lost";
  loop.Ack(ack);
  ASSERT_EQ(loop.all.findings.size(), 1u);
  EXPECT_EQ(loop.all.findings[0].severity, model::Severity::kCritical);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kJudged);
  loop.Steps(50, kHot);
  EXPECT_EQ(loop.all.orders.size(), 1u);
}

TEST(Local, IsRepeatedUnderItsIdUntilItIsAnswered) {
  Loop loop(Local(Mode::kAct));
  loop.delivers = false;
  loop.SayHello();
  loop.Steps(16, kCalm);
  ASSERT_EQ(loop.all.orders.size(), 2u);
  EXPECT_EQ(loop.all.orders[1].id, loop.all.orders[0].id);
  loop.SayHello();
  ASSERT_EQ(loop.all.orders.size(), 3u) << "this client does not know it";
  EXPECT_EQ(loop.all.orders[2].id, loop.all.orders[0].id);
  loop.Ack(AckOf(loop.all.orders[0], model::AckOutcome::kApplied, 16));
  loop.Steps(100, kCalm);
  EXPECT_EQ(loop.all.orders.size(), 3u);
}

TEST(Local, IsNotRepeatedToAClientThatKnowsIt) {
  Loop loop(Local(Mode::kAct));
  loop.SayHello();
  loop.Steps(2, kCalm);
  loop.SayHello();
  EXPECT_EQ(loop.all.orders.size(), 1u);
}

TEST(Local, IsToldAgainInANewEpoch) {
  Loop loop(Local(Mode::kAct));
  loop.SayHello();
  loop.Steps(2, kCalm);
  loop.client.Reset();
  loop.SayHello();
  ASSERT_EQ(loop.all.orders.size(), 2u);
  EXPECT_EQ(loop.all.orders[1].epoch, 1u);
}

TEST(Local, FollowsAChangeOfTauAndOfPlace) {
  Loop loop(Local(Mode::kAct));
  loop.SayHello();
  PolicyOptions options = Local(Mode::kAct);
  options.qk_clip.tau = 40;
  loop.Call([&](PolicyOutput* out) { loop.policy.SetOptions(options, out); });
  ASSERT_EQ(loop.all.orders.size(), 2u);
  EXPECT_EQ(loop.all.orders[1].tau, 40);
  options.qk_clip.where = ClipWhere::kRemote;
  loop.Call([&](PolicyOutput* out) { loop.policy.SetOptions(options, out); });
  ASSERT_EQ(loop.all.orders.size(), 3u);
  EXPECT_EQ(loop.all.orders[2].tau, 0);
  loop.Step(kHot);
  EXPECT_EQ(loop.all.orders.back().where, ClipWhere::kRemote);
}

TEST(Local, StopsWhenTheBudgetIsSpent) {
  PolicyOptions options = Local(Mode::kAct);
  options.budget_per_1000_steps = 1;
  Loop loop(options);
  loop.SayHello();
  loop.Step(kHot);
  loop.Report(Told(&loop, kHot, 0, 1000));
  loop.Steps(320, kCalm);
  EXPECT_FALSE(model::IsOpen(loop.Intent(1).state));
  ASSERT_EQ(loop.all.orders.size(), 2u);
  EXPECT_EQ(loop.all.orders[1].tau, 0);
  EXPECT_THAT(loop.LastDecision(), HasSubstr("which is the budget"));
  loop.Steps(800, kCalm);
  EXPECT_EQ(loop.all.orders.back().tau, 30) << "and goes on when there is room again";
}

}  // namespace
}  // namespace gyrostat::policy
