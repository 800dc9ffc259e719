// The life of an intent: when it closes, what holds the next one back, how it is judged, and what ends with an attempt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness.h"

namespace gyrostat::policy {
namespace {

using model::InterventionState;
using model::Mode;
using model::Outcome;
using ::testing::HasSubstr;

const std::vector<double> kCalm = {10, 11, 12, 13};
const std::vector<double> kHot = {10, 60, 12, 13};

TEST(Intent, ClosesAfterTwoHundredQuietBoundariesAndIsJudged) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Steps(200, kHot);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kApplied);
  EXPECT_EQ(loop.Intent(1).outcome, Outcome::kEffective);
  loop.Step(kHot);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kJudged);
  EXPECT_EQ(loop.Intent(1).reason,
            "1 head above tau 30, worst L0 H1 at 60. Effective: no head stayed above 1.5 tau (45) "
            "for more than 3 boundaries in a row within 50.");
  EXPECT_TRUE(loop.policy.Open().empty());
}

// A head that doubles at once is seen above 1.5 tau until the answer is at the weights: that is no failure of the clip.
TEST(Intent, IsNotBlamedForTheDelayOfTheLoop) {
  for (const model::Boundary delay : {1u, 3u, 5u}) {
    Loop loop(Options(Mode::kAct));
    loop.client.delay = delay;
    loop.SayHello();
    loop.Steps(20, kHot);
    loop.Steps(60, {10, 120, 12, 13});
    EXPECT_EQ(loop.Intent(1).outcome, Outcome::kEffective) << loop.Intent(1).reason;
    EXPECT_THAT(loop.Intent(1).reason,
                HasSubstr("for more than " + std::to_string(std::max<uint64_t>(3, delay + 1)) + " boundaries"));
  }
}

TEST(Intent, FollowsTheLastOneAfterTheCoolDown) {
  for (const uint32_t cooldown : {1u, 7u}) {
    PolicyOptions options = Options(Mode::kAct);
    options.cooldown_boundaries = cooldown;
    Loop loop(options);
    loop.SayHello();
    loop.Steps(201, kHot);
    ASSERT_EQ(loop.Intent(1).state, InterventionState::kJudged);
    loop.Steps(static_cast<int>(cooldown) - 1, {10, 100, 12, 13});
    EXPECT_TRUE(loop.Intent(2).id.empty());
    if (cooldown > 1) {
      EXPECT_EQ(loop.LastDecision(), "cooling down after intent r/1; 6 more to wait");
    }
    loop.Step({10, 100, 12, 13});
    EXPECT_EQ(loop.Intent(2).id, "r/2");
  }
}

TEST(Intent, StaysOneWhileOrdersKeepComing) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  for (int i = 0; i < 600; ++i) loop.Step({10, 60 * std::exp(0.01 * i), 12, 13});
  EXPECT_GT(loop.Intent(1).orders_applied, 500u);
  EXPECT_TRUE(loop.Intent(2).id.empty());
}

TEST(Intent, ThatWaitsInVainExpires) {
  Loop loop(Options(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(5, kHot);
  loop.Steps(199, kCalm);
  EXPECT_EQ(loop.policy.pending(), 1u);
  loop.Step(kCalm);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kExpired);
  EXPECT_THAT(loop.Intent(1).reason, HasSubstr("No head was above tau for 200 steps."));
}

TEST(Intent, ThatNothingBecameOfSaysWhy) {
  Loop silent(Options(Mode::kAct));
  silent.delivers = false;
  silent.SayHello();
  silent.Step(kHot);
  silent.Steps(210, kCalm);
  EXPECT_EQ(silent.Intent(1).state, InterventionState::kExpired);
  EXPECT_THAT(silent.Intent(1).reason, HasSubstr("None of its orders was applied in time."));

  Loop empty(Options(Mode::kAct));
  empty.delivers = false;
  empty.SayHello();
  empty.Step(kHot);
  model::Ack ack;
  ack.order_id = empty.all.orders[0].id;
  ack.outcome = model::AckOutcome::kVoid;
  empty.Ack(ack);
  empty.Steps(210, kCalm);
  EXPECT_EQ(empty.Intent(1).state, InterventionState::kVoid);
}

TEST(Budget, HoldsBackTheIntentBeyondIt) {
  PolicyOptions options = Options(Mode::kAct);
  options.budget_per_1000_steps = 2;
  options.qk_clip.quiet_boundaries = 50;
  options.qk_clip.judged_boundaries = 10;
  Loop loop(options);
  loop.SayHello();
  double size = 60;
  for (int i = 0; i < 3; ++i, size *= 2) {
    loop.Steps(2, {10, size, 12, 13});
    loop.Steps(80, {10, size, 12, 13});
  }
  EXPECT_EQ(loop.Intent(2).id, "r/2");
  EXPECT_TRUE(loop.Intent(3).id.empty());
  EXPECT_EQ(loop.LastDecision(), "2 intents within the last 1000 boundaries, which is the budget");
  loop.Steps(1000, {10, size, 12, 13});
  EXPECT_EQ(loop.Intent(3).id, "r/3");
}

TEST(Outcome, IsIneffectiveWhereAHeadStaysHigh) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Steps(2, kHot);
  loop.delivers = false;  // Clipped once, and then it outgrows everything.
  loop.Steps(52, {10, 200, 12, 13});
  EXPECT_EQ(loop.Intent(1).outcome, Outcome::kIneffective);
  EXPECT_THAT(loop.Intent(1).reason,
              HasSubstr("Ineffective: head L0 H1 stayed above 1.5 tau (45) for 51 boundaries in a "
                        "row, wanted at most 3."));
}

TEST(Outcome, AllowsThreeInARow) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Steps(2, kHot);
  loop.delivers = false;
  loop.Steps(3, {10, 200, 12, 13});
  loop.Steps(50, {10, 60, 12, 13});
  EXPECT_EQ(loop.Intent(1).outcome, Outcome::kEffective);
}

TEST(Outcome, IsHarmfulWhereAHeadStopsBeingFinite) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Steps(2, kHot);
  model::Report report = loop.client.Forward(kHot);
  report.MutableArray(model::Signal::kAttnLogitMax)[3] = HUGE_VALF;
  loop.Report(report);
  EXPECT_EQ(loop.Intent(1).outcome, Outcome::kHarmful);
  EXPECT_THAT(loop.Intent(1).reason, HasSubstr("Harmful: head L1 H1 was finite at opening and is inf at step 103."));
}

TEST(Outcome, IsHarmfulWhereTheWorstHeadEndsFarAboveItsOpening) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Steps(2, kHot);
  loop.delivers = false;
  loop.Steps(52, {10, 500, 12, 13});
  EXPECT_EQ(loop.Intent(1).outcome, Outcome::kHarmful);
}

TEST(Outcome, IsMeasuredFromTheFirstOrderNotFromTheProposal) {
  Loop loop(Options(Mode::kAdvise));
  loop.SayHello();
  loop.Step(kHot);
  loop.Steps(30, {10, 400, 12, 13});  // It grew while somebody thought about it.
  ASSERT_TRUE(loop.Approve("r/1").ok());
  loop.Steps(4, {10, 400, 12, 13});
  loop.delivers = false;
  loop.Steps(60, {10, 1800, 12, 13});  // Not more than four times the 400 at which it was first clipped.
  EXPECT_EQ(loop.Intent(1).outcome, Outcome::kIneffective);
}

TEST(Outcome, IsInconclusiveWhereTheRunEndsFirst) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Steps(30, kHot);
  loop.Call([&](PolicyOutput* out) { loop.policy.OnEnd(out); });
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kJudged);
  EXPECT_EQ(loop.Intent(1).outcome, Outcome::kInconclusive);
}

TEST(Outcome, OfTwoFailuresDisablesTheKindUntilAPersonLooks) {
  PolicyOptions options = Options(Mode::kAct);
  options.qk_clip.quiet_boundaries = 20;
  options.qk_clip.judged_boundaries = 10;
  Loop loop(options);
  loop.SayHello();
  double size = 60;
  for (int i = 0; i < 2; ++i, size *= 4) {
    loop.delivers = true;
    loop.Steps(2, {10, size, 12, 13});
    loop.delivers = false;
    loop.Steps(12, {10, 3 * size, 12, 13});
    loop.Steps(60, kCalm);
  }
  EXPECT_EQ(loop.Intent(1).outcome, Outcome::kIneffective);
  EXPECT_EQ(loop.Intent(2).outcome, Outcome::kIneffective);
  EXPECT_EQ(loop.Intent(2).state, InterventionState::kJudged);
  loop.Steps(3, {10, 10 * size, 12, 13});
  EXPECT_TRUE(loop.Intent(3).id.empty());
  EXPECT_EQ(loop.LastDecision(),
            "qk_clip is disabled for this run after 2 failures, and stays so until somebody sets the mode again");
  const model::Finding finding = loop.all.findings.back();
  EXPECT_THAT(finding.message, HasSubstr("qk_clip is disabled"));
  EXPECT_FALSE(finding.step_end);

  loop.SetMode(Mode::kAct);
  EXPECT_TRUE(loop.all.findings.back().step_end);
  loop.Steps(3, {10, 10 * size, 12, 13});
  EXPECT_EQ(loop.Intent(3).id, "r/3");
}

TEST(Outcome, ThatIsInconclusiveNeverDisables) {
  Loop loop(Options(Mode::kAct));
  for (uint8_t attempt = 1; attempt <= 5; ++attempt) {
    loop.client.hello.attempt.bytes[0] = attempt;
    loop.SayHello();
    loop.Steps(5, {10, 60.0 * attempt, 12, 13});
  }
  for (int i = 1; i <= 4; ++i) EXPECT_EQ(loop.Intent(i).outcome, Outcome::kInconclusive);
  EXPECT_EQ(loop.Intent(5).state, InterventionState::kApplied);
}

TEST(NewAttempt, LosesWhatBelongedToTheOld) {
  Loop loop(Options(Mode::kAct));
  loop.delivers = false;
  loop.SayHello();
  loop.Step(kHot);
  loop.client.hello.attempt.bytes[0] = 2;
  loop.SayHello();
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kLost);
  EXPECT_THAT(loop.Intent(1).reason, HasSubstr("The attempt ended before more was heard."));
  EXPECT_EQ(loop.all.orders.size(), 1u) << "an order outlives no restart";
  loop.Step(kHot);
  ASSERT_EQ(loop.all.orders.size(), 2u);
  EXPECT_EQ(loop.all.orders[1].attempt.bytes[0], 2);
  EXPECT_EQ(loop.all.orders[1].intent_id, "r/2");
}

TEST(NewAttempt, TakesTheRestoredLedgerAsTheTruth) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Steps(3, kHot);
  model::Hello hello = loop.client.Hello();
  hello.attempt.bytes[0] = 2;
  hello.boundary = 1;
  hello.ledger_version = 7;
  hello.ledger = {{1}, {1}, {1234}};
  loop.Call([&](PolicyOutput* out) { loop.policy.OnHello(hello, out); });
  EXPECT_EQ(loop.policy.ledger().version(), 7u);
  EXPECT_EQ(loop.policy.ledger().Sparse(), hello.ledger);
}

TEST(NewAttempt, KeepsTheModeUntilSomebodySetsAnother) {
  Loop loop(Options(Mode::kObserve));
  loop.SayHello();
  loop.Call([&](PolicyOutput* out) { loop.policy.SetOptions(Options(Mode::kAct), out); });
  EXPECT_EQ(loop.policy.mode(), Mode::kObserve) << "the mode in use stays";
  loop.client.hello.attempt.bytes[0] = 2;
  loop.SayHello();
  EXPECT_EQ(loop.policy.mode(), Mode::kObserve) << "not even in a new attempt does the configuration change it";
  loop.SetMode(Mode::kAdvise);
  loop.client.hello.attempt.bytes[0] = 3;
  loop.SayHello();
  EXPECT_EQ(loop.policy.mode(), Mode::kAdvise);
}

TEST(NewEpoch, EndsOrdersAndBases) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Steps(3, kHot);
  loop.client.Reset();
  loop.Step(kHot);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kJudged);
  EXPECT_THAT(loop.Intent(1).reason, HasSubstr("The weights got another history."));
  EXPECT_EQ(loop.policy.ledger().version(), 0u);
  EXPECT_EQ(loop.all.orders.back().epoch, 1u);
  EXPECT_EQ(loop.Intent(2).state, InterventionState::kSent);
  // A report of the old epoch that comes late says nothing any more.
  model::Report old = loop.client.Forward({10, 900, 12, 13});
  old.epoch = 0;
  loop.Report(old);
  EXPECT_TRUE(loop.last.orders.empty());
}

TEST(SetOptions, EndsWhatIsOpenUnderAnotherTau) {
  Loop loop(Options(Mode::kAdvise));
  loop.SayHello();
  loop.Step(kHot);
  ASSERT_TRUE(loop.Approve("r/1").ok());
  PolicyOptions options = Options(Mode::kAdvise);
  options.budget_per_1000_steps = 30;
  loop.Call([&](PolicyOutput* out) { loop.policy.SetOptions(options, out); });
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kApproved) << "a budget is not part of what was approved";
  options.qk_clip.tau = 20;
  loop.Call([&](PolicyOutput* out) { loop.policy.SetOptions(options, out); });
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kWithdrawn);
  EXPECT_EQ(loop.policy.tau(), 20);
  loop.Step(kHot);
  EXPECT_EQ(loop.policy.pending(), 1u) << "a new proposal for the new tau";
}

TEST(TugOfWar, BlamesTheLearningRateAboveTwentyNats) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  for (int i = 0; i < 500 && loop.all.findings.empty(); ++i) loop.Step({10, 60 * std::exp(0.07 * i), 12, 13});
  ASSERT_EQ(loop.all.findings.size(), 1u);
  const model::Finding& finding = loop.all.findings[0];
  EXPECT_EQ(finding.detector, "policy");
  EXPECT_EQ(finding.layer, 0u);
  EXPECT_EQ(finding.head, 1u);
  EXPECT_NEAR(finding.value, 20, 0.2);
  EXPECT_EQ(finding.expected, 20);
  EXPECT_EQ(finding.recommend, model::InterventionKind::kLrScale);
  EXPECT_THAT(finding.message, HasSubstr("the learning rate is the cause"));
}

TEST(TugOfWar, LetsASlowOneGoOn) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  for (int i = 0; i < 3000; ++i) loop.Step({10, 60 * std::exp(0.018 * i), 12, 13});
  EXPECT_TRUE(loop.all.findings.empty()) << "18 nats within 1000 boundaries are legitimate";
}

}  // namespace
}  // namespace gyrostat::policy
