// What the modes observe, advise and act allow, and what a person may say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness.h"

namespace gyrostat::policy {
namespace {

using model::InterventionState;
using model::Mode;
using ::testing::HasSubstr;

const std::vector<double> kCalm = {10, 11, 12, 13};
const std::vector<double> kHot = {10, 60, 12, 13};  // L0 H1.

TEST(Observe, DecidesAndSendsNothing) {
  Loop loop(Options(Mode::kObserve));
  loop.SayHello();
  loop.Steps(3, kCalm);
  EXPECT_TRUE(loop.all.decisions.empty());
  loop.Steps(5, kHot);
  ASSERT_EQ(loop.all.decisions.size(), 1u) << "said once, not at every step";
  EXPECT_FALSE(loop.all.decisions[0].acted);
  EXPECT_EQ(loop.all.decisions[0].step, 104);
  EXPECT_EQ(loop.all.decisions[0].reason, "mode is observe; would clip 1 head above tau 30, worst L0 H1 at 60");
  EXPECT_TRUE(loop.all.orders.empty());
  EXPECT_TRUE(loop.all.changed.empty());
}

TEST(Observe, SaysAgainWhenTwiceAsManyHeadsAreHot) {
  Loop loop(Options(Mode::kObserve));
  loop.SayHello();
  loop.Steps(3, kHot);
  loop.Steps(3, {10, 60, 61, 13});
  loop.Steps(3, {10, 60, 61, 62});
  ASSERT_EQ(loop.all.decisions.size(), 2u);
  EXPECT_THAT(loop.all.decisions[1].reason, HasSubstr("2 heads above tau 30, worst L1 H0 at 61"));
}

TEST(Act, ClipsAtOnceAndTellsOfTheIntent) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Step(kHot);
  ASSERT_EQ(loop.all.orders.size(), 1u);
  const model::Order& order = loop.all.orders[0];
  EXPECT_EQ(order.run, "r");
  EXPECT_EQ(order.attempt, loop.client.hello.attempt);
  EXPECT_EQ(order.basis, 1u);
  EXPECT_EQ(order.expires_boundary, 17u);
  EXPECT_EQ(order.intent_id, "r/1");
  EXPECT_EQ(order.tau, 30);
  ASSERT_EQ(order.entries.size(), 1u);
  EXPECT_EQ(order.entries[0].head, 1u);
  EXPECT_EQ(order.entries[0].reported_max, 60);
  EXPECT_EQ(order.entries[0].target_ticks, remedy::LnTicks(2));
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kSent);
  EXPECT_EQ(loop.LastDecision(), "1 head above tau 30, worst L0 H1 at 60: ordered under intent r/1");

  loop.Step(kHot);  // The order arrives.
  const model::Intervention intent = loop.Intent(1);
  EXPECT_EQ(intent.state, InterventionState::kApplied);
  EXPECT_EQ(intent.reason, "1 head above tau 30, worst L0 H1 at 60.");
  EXPECT_EQ(intent.author, "policy");
  EXPECT_EQ(intent.mode, Mode::kAct);
  EXPECT_EQ(intent.step_proposed, 101);
  EXPECT_EQ(intent.step_applied, 102);
  EXPECT_EQ(intent.orders, 1u) << "the same evidence is not sent twice";
  EXPECT_EQ(intent.orders_applied, 1u);
  EXPECT_EQ(intent.heads, 1u);
  EXPECT_EQ(intent.median_delay_boundaries, 1);
  EXPECT_EQ(loop.policy.ledger().At(0, 1), remedy::LnTicks(2));
  EXPECT_EQ(loop.policy.ledger().Sparse(), loop.client.ledger().Sparse());
}

TEST(Act, ProposesWhereTheKindIsNotAutomatic) {
  PolicyOptions options = Options(Mode::kAct);
  options.automatic = {model::InterventionKind::kCollect};
  Loop loop(options);
  loop.SayHello();
  loop.Steps(3, kHot);
  EXPECT_TRUE(loop.all.orders.empty());
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kProposed);
}

TEST(Advise, WaitsForAPersonAndThenOrdersFromFreshReports) {
  Loop loop(Options(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(5, kHot);
  EXPECT_TRUE(loop.all.orders.empty());
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kProposed);
  EXPECT_EQ(loop.policy.pending(), 1u);
  EXPECT_EQ(loop.LastDecision(), "1 head above tau 30, worst L0 H1 at 60: proposed as intent r/1");

  ASSERT_TRUE(loop.Approve("r/1").ok());
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kApproved);
  EXPECT_EQ(loop.Intent(1).author, "kim");
  EXPECT_TRUE(loop.all.orders.empty()) << "an approval binds the intent, not old numbers";
  EXPECT_EQ(loop.policy.pending(), 0u);
  loop.Step({10, 90, 12, 13});
  ASSERT_EQ(loop.all.orders.size(), 1u);
  EXPECT_EQ(loop.all.orders[0].basis, 6u);
  EXPECT_EQ(loop.all.orders[0].entries[0].target_ticks, remedy::LnTicks(3));
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kSent);
  EXPECT_EQ(loop.Intent(1).reason, "1 head above tau 30, worst L0 H1 at 60. Approved by kim: looks right");
}

TEST(Approve, RefusesWhatDoesNotWait) {
  Loop loop(Options(Mode::kAdvise));
  loop.SayHello();
  loop.Step(kHot);
  EXPECT_EQ(loop.Approve("r/2").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(loop.Approve("r/2").message(), "run r has no intervention r/2");
  for (const char* strange : {"", "r/", "r/x", "r/01", "other/1", "r/99999999999999999999999"})
    EXPECT_EQ(loop.Approve(strange).code(), absl::StatusCode::kNotFound) << strange;
  ASSERT_TRUE(loop.Approve("r/1").ok());
  EXPECT_EQ(loop.Approve("r/1").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(loop.Approve("r/1").message(), "intervention r/1 is approved, wanted proposed");
  loop.SetMode(Mode::kObserve);
  EXPECT_EQ(loop.Reject("r/1").message(), "intervention r/1 is withdrawn, wanted proposed");
}

TEST(Reject, IsNotAnsweredWithTheSameProposal) {
  Loop loop(Options(Mode::kAdvise));
  loop.SayHello();
  loop.Step(kHot);
  ASSERT_TRUE(loop.Reject("r/1").ok());
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kRejected);
  EXPECT_EQ(loop.Intent(1).author, "kim");
  EXPECT_EQ(loop.Intent(1).reason, "1 head above tau 30, worst L0 H1 at 60. Rejected by kim: not now");
  loop.Steps(199, kHot);
  EXPECT_EQ(loop.policy.pending(), 0u);
  EXPECT_THAT(loop.LastDecision(), HasSubstr("kim rejected intent r/1"));
  loop.Step(kHot);
  EXPECT_EQ(loop.policy.pending(), 1u);
}

TEST(SetMode, WithdrawsAProposalInObserve) {
  Loop loop(Options(Mode::kAdvise));
  loop.SayHello();
  loop.Step(kHot);
  loop.SetMode(Mode::kObserve);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kWithdrawn);
  EXPECT_THAT(loop.Intent(1).reason, HasSubstr("Stopped: mode is observe now, set by kim."));
  EXPECT_TRUE(loop.policy.Open().empty());
}

TEST(SetMode, StopsOrdersAtOnceButBelievesTheAckOfOneThatWasOut) {
  Loop loop(Options(Mode::kAct));
  loop.client.delay = 2;
  loop.SayHello();
  loop.Step(kHot);
  loop.SetMode(Mode::kObserve);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kWithdrawn);
  loop.Steps(3, {10, 90, 12, 13});
  EXPECT_EQ(loop.all.orders.size(), 1u);
  const model::Intervention intent = loop.Intent(1);
  EXPECT_EQ(intent.state, InterventionState::kJudged);
  EXPECT_EQ(intent.outcome, model::Outcome::kInconclusive);
  EXPECT_EQ(intent.orders_applied, 1u);
  EXPECT_EQ(loop.policy.ledger().Sparse(), loop.client.ledger().Sparse());
}

TEST(SetMode, LetsAProposalGoAheadInAct) {
  Loop loop(Options(Mode::kAdvise));
  loop.SayHello();
  loop.Step(kHot);
  loop.SetMode(Mode::kAct);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kApproved);
  loop.Step(kHot);
  EXPECT_EQ(loop.all.orders.size(), 1u);
  EXPECT_EQ(loop.all.orders[0].intent_id, "r/1");
}

TEST(SetMode, StopsInAdviseWhatNobodyApproved) {
  Loop automatic(Options(Mode::kAct));
  automatic.SayHello();
  automatic.Steps(3, kHot);
  automatic.SetMode(Mode::kAdvise);
  EXPECT_FALSE(model::IsOpen(automatic.Intent(1).state));

  Loop approved(Options(Mode::kAdvise));
  approved.SayHello();
  approved.Step(kHot);
  ASSERT_TRUE(approved.Approve("r/1").ok());
  approved.Steps(3, kHot);
  approved.SetMode(Mode::kAct);
  approved.SetMode(Mode::kAdvise);
  EXPECT_TRUE(model::IsOpen(approved.Intent(1).state));
}

}  // namespace
}  // namespace gyrostat::policy
