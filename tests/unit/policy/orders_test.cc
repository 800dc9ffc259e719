// Orders on their way: expiry, delay, refusals, losses, repeats, reconnects.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "harness.h"

namespace gyrostat::policy {
namespace {

using model::AckOutcome;
using model::InterventionState;
using model::Mode;
using ::testing::HasSubstr;

const std::vector<double> kCalm = {10, 11, 12, 13};
const std::vector<double> kHot = {10, 60, 12, 13};

TEST(Orders, GoOnceForOneEvidenceAndAgainForLarger) {
  Loop loop(Options(Mode::kAct));
  loop.client.delay = 10;
  loop.SayHello();
  loop.Steps(3, kHot);
  EXPECT_EQ(loop.all.orders.size(), 1u);
  loop.Step({10, 70, 12, 13});
  ASSERT_EQ(loop.all.orders.size(), 2u);
  EXPECT_EQ(loop.all.orders[1].entries[0].target_ticks, remedy::LnTicks(float{70} / 30));
  loop.Step({10, 65, 50, 13});
  ASSERT_EQ(loop.all.orders.size(), 3u);
  ASSERT_EQ(loop.all.orders[2].entries.size(), 1u) << "only the new head";
  EXPECT_EQ(loop.all.orders[2].entries[0].layer, 1u);
}

TEST(Orders, HaveIdsThatNoOtherRunOrAttemptHas) {
  std::set<model::OrderId> ids;
  for (uint8_t attempt = 1; attempt <= 3; ++attempt) {
    Loop loop(Options(Mode::kAct));
    loop.client.hello.attempt.bytes[0] = attempt;
    loop.SayHello();
    for (int i = 0; i < 20; ++i) loop.Step({10, 60.0 + 10 * i, 12, 13});
    for (const model::Order& order : loop.all.orders) ids.insert(order.id);
  }
  EXPECT_EQ(ids.size(), 60u);
}

TEST(Orders, LiveFourTimesTheLoopsDelay) {
  Loop loop(Options(Mode::kAct));
  loop.client.delay = 12;
  loop.SayHello();
  loop.Step(kHot);
  EXPECT_EQ(loop.all.orders.back().expires_boundary - loop.all.orders.back().basis, 16u);
  loop.Steps(12, kHot);
  ASSERT_EQ(loop.acks.size(), 1u);
  EXPECT_EQ(loop.Intent(1).median_delay_boundaries, 12);
  loop.Step({10, 500, 12, 13});
  EXPECT_EQ(loop.all.orders.back().expires_boundary - loop.all.orders.back().basis, 48u);
}

TEST(Orders, LearnTheDelayFromTheOnesThatCameTooLate) {
  Loop loop(Options(Mode::kAct));
  loop.client.delay = 20;
  loop.SayHello();
  for (int i = 0; i < 60 && loop.Intent(1).orders_applied == 0; ++i) loop.Step({10, 60.0 + i, 12, 13});
  EXPECT_EQ(loop.Intent(1).orders_applied, 1u);
  EXPECT_EQ(loop.all.orders.back().expires_boundary - loop.all.orders.back().basis, 64u) << "never more than 64";
}

TEST(Orders, ThatExpireThreeTimesInARowRecommendLocal) {
  Loop loop(Options(Mode::kAct));
  loop.client.delay = 70;  // Beyond what any order lives.
  loop.SayHello();
  int steps = 0;
  for (; steps < 100 && loop.all.findings.empty(); ++steps) loop.Step({10, 60.0 + steps, 12, 13});
  EXPECT_EQ(steps, 36) << "three orders and the time until no word of them can come";
  ASSERT_EQ(loop.all.findings.size(), 1u);
  EXPECT_EQ(loop.all.findings[0].detector, "policy");
  EXPECT_EQ(loop.all.findings[0].severity, model::Severity::kWarning);
  EXPECT_THAT(loop.all.findings[0].message, HasSubstr("set policy.qk_clip.where to local"));
  EXPECT_FALSE(loop.all.findings[0].step_end);
  loop.client.delay = 1;
  loop.Steps(80, {10, 900, 12, 13});
  ASSERT_EQ(loop.all.findings.size(), 2u);
  EXPECT_TRUE(loop.all.findings[1].step_end);
}

TEST(Orders, ThatNobodyAnswersCountAsExpired) {
  Loop loop(Options(Mode::kAct));
  loop.delivers = false;
  loop.SayHello();
  loop.Steps(33, kHot);  // Lives to boundary 17; then as long again for a word of it.
  EXPECT_EQ(loop.all.orders.size(), 1u);
  loop.Step(kHot);
  EXPECT_EQ(loop.all.orders.size(), 2u);
  EXPECT_NE(loop.all.orders[0].id, loop.all.orders[1].id);
  loop.Steps(100, kHot);
  EXPECT_EQ(loop.all.findings.size(), 1u);
}

TEST(Orders, WaitWhenTooManyAreUnanswered) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.client.delay = 40;
  loop.Steps(1, kHot);
  loop.Steps(45, kCalm);  // The loop is known to be slow: orders live long.
  loop.delivers = false;
  for (int i = 0; i < 70; ++i) loop.Step({10, 62.0 + 2 * i, 12, 13});
  EXPECT_EQ(loop.all.orders.size(), 1u + 64);
  EXPECT_THAT(loop.LastDecision(), HasSubstr("64 orders are unanswered"));
}

TEST(Refused, EndsTheIntentAndIsNotRepeatedAtEveryStep) {
  Loop loop(Options(Mode::kAct));
  loop.client.refuse_all = "the trainer says no";
  loop.SayHello();
  loop.Steps(400, kHot);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kRefused);
  EXPECT_THAT(loop.Intent(1).reason, HasSubstr("The client refused: the trainer says no."));
  // Pauses of 16, 32, 64, 128 boundaries, each order on its way for one.
  EXPECT_EQ(loop.all.orders.size(), 5u);
  EXPECT_THAT(loop.LastDecision(), HasSubstr("the client refused the last order: the trainer says no"));
  EXPECT_LE(loop.all.decisions.size(), 12u);
}

TEST(Refused, OnceDoesNotEndWhatHasWorked) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Steps(2, kHot);
  ASSERT_EQ(loop.Intent(1).orders_applied, 1u);
  loop.client.refuse_all = "the basis is not known";
  loop.Steps(1, {10, 100, 12, 13});
  loop.Steps(1, {10, 110, 12, 13});
  loop.client.refuse_all.reset();
  loop.Steps(2, {10, 120, 12, 13});
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kApplied);
  EXPECT_EQ(loop.Intent(1).orders_applied, 3u);
  loop.client.refuse_all = "no more";
  for (int i = 0; i < 6; ++i) loop.Step({10, 200.0 + 10 * i, 12, 13});
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kJudged);
  EXPECT_EQ(loop.Intent(1).outcome, model::Outcome::kInconclusive);
  EXPECT_THAT(loop.Intent(1).reason, HasSubstr("The client refused: no more."));
}

TEST(Failed, EndsAllOrderingOfTheAttempt) {
  Loop loop(Options(Mode::kAct));
  loop.delivers = false;
  loop.SayHello();
  loop.Step(kHot);
  model::Ack ack;
  ack.order_id = loop.all.orders[0].id;
  ack.outcome = AckOutcome::kFailed;
  ack.reason = "the device is lost";
  loop.Ack(ack);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kRefused);
  ASSERT_EQ(loop.all.findings.size(), 1u);
  EXPECT_EQ(loop.all.findings[0].severity, model::Severity::kCritical);
  EXPECT_THAT(loop.all.findings[0].message, HasSubstr("the device is lost"));
  loop.Steps(300, kHot);
  EXPECT_EQ(loop.all.orders.size(), 1u);
  EXPECT_THAT(loop.LastDecision(), HasSubstr("weights may be partly scaled: the device is lost"));
  // Another attempt starts from whole weights.
  loop.client.hello.attempt.bytes[0] = 2;
  loop.SayHello();
  EXPECT_TRUE(loop.all.findings.back().step_end);
  loop.Step(kHot);
  EXPECT_EQ(loop.all.orders.size(), 2u);
}

TEST(Acks, CountOnceHoweverOftenTheyCome) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Steps(2, kHot);
  const model::Ack ack = loop.acks.at(0);
  for (int i = 0; i < 3; ++i) loop.Ack(ack);
  EXPECT_EQ(loop.Intent(1).orders_applied, 1u);
  EXPECT_EQ(loop.policy.ledger().Sparse(), loop.client.ledger().Sparse());
  EXPECT_EQ(loop.policy.ledger().version(), 1u);
}

TEST(Acks, OfStrangersMoveNothing) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  model::Ack ack;
  ack.order_id.bytes[3] = 9;
  ack.outcome = AckOutcome::kApplied;
  ack.ledger_version_after = 1;
  ack.applied = {{0}, {0}, {5}};
  loop.Ack(ack);
  EXPECT_TRUE(loop.all.changed.empty());
  EXPECT_EQ(loop.policy.ledger().version(), 0u);
}

TEST(Acks, ThatTellOfUnheardChangesStopOrdersUntilAHello) {
  Loop loop(Options(Mode::kAct));
  loop.delivers = false;
  loop.SayHello();
  loop.Step(kHot);
  model::Ack ack;
  ack.order_id = loop.all.orders[0].id;
  ack.outcome = AckOutcome::kApplied;
  ack.boundary = 2;
  ack.ledger_version_before = 4;
  ack.ledger_version_after = 5;
  ack.applied = {{0}, {0}, {5}};
  loop.Ack(ack);
  model::Report report = loop.client.Forward(kHot);
  report.ledger_version = 5;
  loop.Report(report);
  EXPECT_EQ(loop.all.orders.size(), 1u);
  EXPECT_EQ(loop.LastDecision(),
            "the copy of the clip ledger stood at version 0 when the job told of the change from 4 "
            "to 5: something that it applied was not heard");
  loop.SayHello();
  loop.Step(kHot);
  EXPECT_EQ(loop.all.orders.size(), 2u);
}

TEST(Acks, ThatTellOfNoChangeMayOvertakeOneThatDoes) {
  Loop loop(Options(Mode::kAct));
  loop.delivers = false;
  loop.SayHello();
  loop.Step(kHot);
  loop.Step({10, 70, 12, 13});
  ASSERT_EQ(loop.all.orders.size(), 2u);
  model::Ack nothing;
  nothing.order_id = loop.all.orders[1].id;
  nothing.outcome = AckOutcome::kVoid;
  nothing.boundary = 3;
  nothing.ledger_version_before = nothing.ledger_version_after = 1;  // Applied, and not confirmed by all ranks yet.
  loop.Ack(nothing);
  model::Ack applied;
  applied.order_id = loop.all.orders[0].id;
  applied.outcome = AckOutcome::kApplied;
  applied.boundary = 2;
  applied.ledger_version_after = 1;
  applied.applied = {{0}, {1}, {loop.all.orders[0].entries.at(0).target_ticks}};
  loop.Ack(applied);
  EXPECT_EQ(loop.policy.ledger().version(), 1u);
  model::Report report = loop.client.Forward({10, 80, 12, 13});
  report.ledger_version = 1;
  loop.Report(report);
  EXPECT_EQ(loop.all.orders.size(), 3u) << loop.LastDecision();
}

TEST(Acks, OfAnotherHistoryDoNotTouchTheNewLedger) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Step(kHot);
  loop.Report(loop.client.Forward(kHot));
  const std::vector<model::Ack> late = loop.client.Boundary();
  ASSERT_EQ(late.size(), 1u);
  loop.client.Reset();
  loop.SayHello();
  loop.Ack(late[0]);  // Sent again after the hello, as everything that was not acknowledged.
  EXPECT_EQ(loop.policy.ledger().version(), 0u);
  EXPECT_EQ(loop.Intent(1).orders_applied, 1u) << "it was applied, in its time";
  loop.Step(kHot);
  EXPECT_EQ(loop.all.orders.size(), 2u) << "and nothing is in doubt";
}

TEST(Reconnect, SendsAgainWhatTheClientDoesNotKnow) {
  Loop loop(Options(Mode::kAct));
  loop.delivers = false;
  loop.SayHello();
  loop.Steps(2, kHot);
  ASSERT_EQ(loop.all.orders.size(), 1u);
  loop.delivers = true;
  loop.SayHello();
  ASSERT_EQ(loop.all.orders.size(), 2u);
  EXPECT_EQ(loop.all.orders[1].id, loop.all.orders[0].id);
  EXPECT_EQ(loop.all.orders[1].entries.size(), 1u);
  loop.Step(kHot);
  EXPECT_EQ(loop.Intent(1).orders, 1u);
  EXPECT_EQ(loop.Intent(1).orders_applied, 1u);
}

TEST(Reconnect, DoesNotSendAgainWhatAModeHasEnded) {
  Loop loop(Options(Mode::kAct));
  loop.delivers = false;
  loop.SayHello();
  loop.Steps(2, kHot);
  ASSERT_EQ(loop.all.orders.size(), 1u);
  loop.SetMode(Mode::kObserve);
  loop.SayHello();
  EXPECT_EQ(loop.all.orders.size(), 1u);
}

TEST(Reconnect, SettlesWhatTheHelloTellsAndLearnsTheRestFromTheAck) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Step(kHot);
  loop.Report(loop.client.Forward(kHot));
  const std::vector<model::Ack> lost = loop.client.Boundary();  // The stream broke before they were heard.
  ASSERT_EQ(lost.size(), 1u);
  loop.SayHello();
  EXPECT_EQ(loop.all.orders.size(), 1u) << "not sent again";
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kApplied);
  EXPECT_EQ(loop.Intent(1).orders_applied, 1u);
  EXPECT_EQ(loop.Intent(1).median_delay_boundaries, std::nullopt);
  EXPECT_EQ(loop.policy.ledger().Sparse(), loop.client.ledger().Sparse());
  loop.Ack(lost[0]);  // Sent again with the reports.
  EXPECT_EQ(loop.Intent(1).orders_applied, 1u);
  EXPECT_EQ(loop.Intent(1).median_delay_boundaries, 1);
  EXPECT_EQ(loop.Intent(1).step_applied, 102);
  EXPECT_EQ(loop.Intent(1).heads, 1u);
  EXPECT_EQ(loop.policy.ledger().version(), 1u);
}

TEST(Reconnect, ForgetsWhatHasExpired) {
  Loop loop(Options(Mode::kAct));
  loop.delivers = false;
  loop.SayHello();
  loop.Step(kHot);
  for (int i = 0; i < 20; ++i) loop.client.Forward(kHot);  // The daemon was away.
  loop.SayHello();
  EXPECT_EQ(loop.all.orders.size(), 1u);
  loop.Step(kHot);
  EXPECT_EQ(loop.all.orders.size(), 2u) << "fresh evidence orders anew";
  EXPECT_TRUE(loop.all.findings.empty());
}

TEST(Reconnect, OrdersNothingFromReportsThatWereMeasuredLongAgo) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  std::vector<model::Report> kept;
  for (int i = 0; i < 40; ++i) kept.push_back(loop.client.Forward(kHot));
  loop.SayHello();
  for (const model::Report& report : kept) loop.Report(report);
  ASSERT_EQ(loop.all.orders.size(), 1u);
  EXPECT_EQ(loop.all.orders[0].basis, 25u) << "younger than 16 boundaries";
}

}  // namespace
}  // namespace gyrostat::policy
