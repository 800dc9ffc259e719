// What becomes of the orders of measures, and what a resume may lose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "measures_harness.h"
#include "remedy/registers.h"

namespace gyrostat::policy {
namespace {

using model::InterventionKind;
using model::InterventionState;
using model::Mode;
using model::Signal;
using testing::HasSubstr;

// A run with an approved lr_scale, not sent yet.
MeasureLoop Approved() {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(40);
  EXPECT_TRUE(loop.Propose({.kind = InterventionKind::kLrScale, .scale = 0.5, .for_boundaries = 100}).ok());
  EXPECT_TRUE(loop.Approve("r/1").ok());
  return loop;
}

TEST(MeasureOrders, ASecondDeliveryIsVoidAndChangesNothing) {
  MeasureLoop loop = Approved();
  loop.Steps(3);
  ASSERT_EQ(loop.Intent(1).state, InterventionState::kApplied);
  loop.Redeliver(loop.all.orders[0]);
  loop.Steps(3);
  ASSERT_EQ(loop.acks.size(), 2u);
  EXPECT_EQ(loop.acks[1].outcome, model::AckOutcome::kVoid);
  EXPECT_EQ(loop.registers.at(remedy::kRegisterLrScale).version, 1u);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kApplied);
  EXPECT_EQ(loop.Intent(1).orders_applied, 1u);
}

TEST(MeasureOrders, ExpiredOnesAreMadeAnewThreeTimes) {
  MeasureLoop loop = Approved();
  loop.delivers = false;
  loop.Steps(120);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kExpired);
  ASSERT_EQ(loop.all.orders.size(), 3u);
  EXPECT_NE(loop.all.orders[0].id, loop.all.orders[1].id);
  EXPECT_LT(loop.all.orders[0].sets[1].value, loop.all.orders[1].sets[1].value);  // Until: counted from then.
}

TEST(MeasureOrders, AHelloSettlesWhatWasApplied) {
  MeasureLoop loop = Approved();
  loop.hears = false;
  loop.Steps(3);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kSent);
  loop.hears = true;
  loop.SayHello();
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kApplied);
  EXPECT_EQ(loop.all.orders.size(), 1u);
  loop.Tell(loop.acks[0]);  // It comes all the same.
  EXPECT_EQ(loop.Intent(1).orders_applied, 1u);
}

TEST(MeasureOrders, AHelloThatKnowsNothingGetsTheSameOrderAgain) {
  MeasureLoop loop = Approved();
  loop.delivers = false;
  loop.Step();
  loop.delivers = true;
  loop.SayHello();
  ASSERT_EQ(loop.all.orders.size(), 2u);
  EXPECT_EQ(loop.all.orders[0].id, loop.all.orders[1].id);
  loop.Steps(2);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kApplied);
}

TEST(MeasureOrders, ARefusalEndsTheMeasureAndTheKindRests) {
  MeasureLoop loop(In(Mode::kAct, {InterventionKind::kLrScale}));
  loop.SayHello();
  loop.Steps(40);
  loop.refuses = "scale is 0.5, wanted 0.9 or more";
  loop.Find("grad_growth", InterventionKind::kLrScale);
  loop.Steps(3);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kRefused);
  EXPECT_THAT(loop.Intent(1).reason, HasSubstr("The client refused: scale is 0.5, wanted 0.9 or more."));
  loop.Steps(190);
  EXPECT_EQ(loop.all.orders.size(), 1u);
  loop.Steps(20);
  EXPECT_EQ(loop.all.orders.size(), 2u);
  loop.Steps(380);
  EXPECT_EQ(loop.all.orders.size(), 2u);  // 400 this time.
}

TEST(MeasureOrders, AVoidOneThatNothingExplainsWaitsForTheNextHello) {
  MeasureLoop loop = Approved();
  loop.registers[remedy::kRegisterLrScale] = {.id = remedy::kRegisterLrScale, .to = 0.9f, .version = 3};
  loop.Steps(4);
  EXPECT_EQ(loop.all.orders.size(), 1u);
  EXPECT_THAT(loop.LastDecision(), HasSubstr("void: its registers stand elsewhere"));
  loop.SayHello();
  loop.Steps(3);
  EXPECT_EQ(loop.all.orders.size(), 2u);
  EXPECT_EQ(loop.all.orders[1].sets[0].expected_version, 3u);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kApplied);
}

TEST(MeasureOrders, SkipStepNamesItsBoundaryAndIsVoidAfterIt) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(40);
  EXPECT_TRUE(absl::IsInvalidArgument(loop.Propose({.kind = InterventionKind::kSkipStep})));
  const absl::Status past = loop.Propose({.kind = InterventionKind::kSkipStep, .at_step = 40});
  EXPECT_TRUE(absl::IsFailedPrecondition(past));
  EXPECT_THAT(std::string(past.message()), HasSubstr("step 40 is past or too near"));
  ASSERT_TRUE(loop.Propose({.kind = InterventionKind::kSkipStep, .at_step = 60}).ok());
  loop.Steps(30);
  ASSERT_TRUE(loop.Approve("r/1").ok());
  loop.Step();
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kVoid);
  loop.Step();
  ASSERT_TRUE(loop.Propose({.kind = InterventionKind::kSkipStep, .at_step = 90}).ok());
  ASSERT_TRUE(loop.Approve("r/2").ok());
  loop.Steps(2);
  EXPECT_EQ(loop.Value(remedy::kRegisterSkipBoundary), 90);
  loop.Steps(45);
  EXPECT_EQ(loop.Intent(2).outcome, model::Outcome::kEffective);
}

TEST(MeasureOrders, OutOfBoundsIsRefusedAndNeverClamped) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(40);
  const auto message = [&loop](const Proposal& proposal) { return std::string(loop.Propose(proposal).message()); };
  EXPECT_EQ(message({.kind = InterventionKind::kLrScale, .scale = 1.5}), "scale is 1.5, wanted 0.01 to 1");
  EXPECT_THAT(message({.kind = InterventionKind::kDeepnormAlpha, .alpha = 5.2}), HasSubstr("a factor of 5.2"));
  EXPECT_THAT(message({.kind = InterventionKind::kDeepnormAlpha, .ramp = 201}), HasSubstr("ramp is 201"));
  EXPECT_THAT(message({.kind = InterventionKind::kWarmupExtension, .warmup_end = 801}), HasSubstr("at most 800"));
  EXPECT_THAT(message({.kind = InterventionKind::kWarmupExtension, .alpha = 2}), HasSubstr("takes no such thing as"));
  EXPECT_THAT(message({.kind = InterventionKind::kQkClip}), HasSubstr("ordered by the policy itself"));
  EXPECT_TRUE(loop.all.orders.empty());
  EXPECT_EQ(loop.policy.pending(), 0u);
}

TEST(Propose, TakesThePlaceOfThePolicysOwnAndIsRefusedInObserve) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(40);
  loop.Find("grad_growth", InterventionKind::kLrScale);
  loop.Step();
  ASSERT_TRUE(loop.Propose({.kind = InterventionKind::kLrScale, .scale = 0.25, .reason = "half is too little"}).ok());
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kSuperseded);
  EXPECT_EQ(loop.Intent(2).state, InterventionState::kProposed);
  EXPECT_THAT(loop.Intent(2).reason, HasSubstr("Proposed by kim: half is too little"));
  loop.SetMode(Mode::kObserve);
  const absl::Status status = loop.Propose({.kind = InterventionKind::kLrScale});
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("gyrostatctl mode r advise"));
}

// A run in act with a stretched warm-up, at step 60.
MeasureLoop Stretched(Mode mode) {
  MeasureLoop loop(In(Mode::kAct));
  loop.SayHello();
  loop.Steps(20);
  loop.Find("ln_input", InterventionKind::kWarmupExtension, Signal::kLnInputMs);
  loop.Steps(40);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kApplied);
  if (mode != Mode::kAct) loop.SetMode(mode);
  return loop;
}

TEST(Resume, ThatLostTheEnvelopeGetsTheSameRayInAct) {
  MeasureLoop loop = Stretched(Mode::kAct);
  const model::Order first = loop.all.orders[0];
  loop.Restart(false);
  loop.Steps(3);
  ASSERT_EQ(loop.all.orders.size(), 2u);
  const model::Order& again = loop.all.orders[1];
  EXPECT_EQ(again.sets[1].value, first.sets[1].value);        // The same slope ...
  EXPECT_EQ(again.sets[3].value, first.sets[3].value - 60);   // ... to the same step, in boundaries of this attempt.
  EXPECT_EQ(again.sets[0].expected_version, 0u);
  EXPECT_EQ(loop.Intent(2).state, InterventionState::kApplied);
  EXPECT_THAT(loop.Intent(2).reason, HasSubstr("The same ray is ordered again"));
  EXPECT_TRUE(loop.all.findings.empty());
}

TEST(Resume, ThatLostTheEnvelopeIsACriticalFindingElsewhere) {
  MeasureLoop loop = Stretched(Mode::kAdvise);
  loop.Restart(false);
  loop.Steps(3);
  EXPECT_EQ(loop.all.orders.size(), 1u);
  ASSERT_EQ(loop.all.findings.size(), 1u);
  EXPECT_EQ(loop.all.findings[0].severity, model::Severity::kCritical);
  EXPECT_THAT(loop.all.findings[0].message, HasSubstr("has lost it: the learning rate is 0.001, wanted"));
  loop.Restart(true);  // Nothing was kept: it is still lost, and said already.
  loop.Steps(3);
  EXPECT_EQ(loop.all.findings.size(), 1u);
}

TEST(Resume, WithItsStateOrFromBeforeTheRayLosesNothing) {
  MeasureLoop loop = Stretched(Mode::kAct);
  loop.Restart(true);
  loop.Steps(3);
  EXPECT_EQ(loop.all.orders.size(), 1u);
  MeasureLoop before = Stretched(Mode::kAct);
  before.step = 5;
  before.Over("ln_input");
  before.Restart(false);
  before.Steps(3);
  EXPECT_EQ(before.all.orders.size(), 1u);
  EXPECT_TRUE(before.all.findings.empty());
}

TEST(Resume, ThatLostAlphaIsACriticalFinding) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(120);
  ASSERT_TRUE(loop.Propose({.kind = InterventionKind::kDeepnormAlpha, .alpha = 2.0}).ok());
  ASSERT_TRUE(loop.Approve("r/1").ok());
  loop.Steps(10);
  loop.Restart(true);
  EXPECT_TRUE(loop.all.findings.empty());
  loop.Restart(false);
  ASSERT_EQ(loop.all.findings.size(), 1u);
  EXPECT_THAT(loop.all.findings[0].message, HasSubstr("resumed without the alpha"));
}

std::string Bytes(const RunPolicy& policy) {
  base::ByteWriter writer;
  policy.Save(&writer);
  return writer.Take();
}

// The same story, with and without a restart of the daemon before every step: ids, orders and words are the same.
std::string Story(bool reload) {
  const PolicyOptions options = In(Mode::kAct, {InterventionKind::kLrScale, InterventionKind::kCollect});
  MeasureLoop loop(options);
  loop.SayHello();
  base::ByteWriter told;
  for (int i = 0; i < 420; ++i) {
    if (reload) {
      const std::string bytes = Bytes(loop.policy);
      RunPolicy fresh("r", options);
      base::ByteReader in(bytes);
      EXPECT_TRUE(fresh.Load(&in) && in.AtEnd());
      EXPECT_EQ(Bytes(fresh), bytes);
      loop.policy = std::move(fresh);
    }
    if (i == 30) loop.Find("ln_input", InterventionKind::kWarmupExtension, Signal::kLnInputMs);
    if (i == 60) loop.Find("grad_growth", InterventionKind::kLrScale);
    if (i == 100) loop.Restart(true);
    if (i == 150) {
      EXPECT_TRUE(loop.Propose({.kind = InterventionKind::kGradClip, .max_norm = 1.0}).ok());
    }
    if (i == 151) {
      EXPECT_TRUE(loop.Approve(loop.policy.Open().back().id).ok());
    }
    loop.delivers = i % 7 != 3;
    loop.Step();
  }
  base::SaveTo(&told, loop.all.decisions);
  base::SaveTo(&told, loop.all.changed);
  base::SaveTo(&told, loop.all.orders);
  base::SaveTo(&told, loop.all.findings);
  EXPECT_GE(loop.all.orders.size(), 3u);
  std::set<std::string> ids;
  for (const model::Order& order : loop.all.orders) ids.insert(order.id.ToHex());
  EXPECT_EQ(ids.size(), loop.all.orders.size());
  return told.Take();
}

TEST(MeasureState, SavedAtAnyPointChangesNothing) { EXPECT_EQ(Story(false), Story(true)); }

}  // namespace
}  // namespace gyrostat::policy
