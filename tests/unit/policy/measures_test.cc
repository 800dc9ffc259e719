// Measures: how interventions of other kinds than qk_clip begin, go out, are judged and end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "measures_harness.h"
#include "remedy/registers.h"

namespace gyrostat::policy {
namespace {

using model::InterventionKind;
using model::InterventionState;
using model::Mode;
using model::Outcome;
using model::Signal;
using testing::HasSubstr;

TEST(Measures, AreOnlyNamedInObserve) {
  MeasureLoop loop(In(Mode::kObserve, {InterventionKind::kLrScale}));
  loop.SayHello();
  loop.Find("grad_growth", InterventionKind::kLrScale);
  loop.Steps(50);
  EXPECT_TRUE(loop.all.changed.empty());
  EXPECT_TRUE(loop.all.orders.empty());
  ASSERT_EQ(loop.all.decisions.size(), 1u);
  EXPECT_FALSE(loop.all.decisions[0].acted);
  EXPECT_EQ(loop.all.decisions[0].kind, InterventionKind::kLrScale);
  EXPECT_THAT(loop.LastDecision(), HasSubstr("mode is observe; would propose lr_scale: grad_growth says so. Then the "
                                             "learning rate times 0.5 for 1000 steps."));
}

TEST(Measures, WaitForAPersonThenTakeNumbersFromTheFreshestReport) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(20);
  loop.Find("grad_profile", InterventionKind::kWarmupExtension, Signal::kLayerGradNorm);
  loop.Step();
  ASSERT_EQ(loop.policy.pending(), 1u);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kProposed);
  EXPECT_TRUE(loop.all.orders.empty());
  loop.Steps(30);
  ASSERT_TRUE(loop.Approve("r/1").ok());
  EXPECT_TRUE(loop.all.orders.empty());  // Not before a report gives the numbers.
  loop.Step();
  ASSERT_EQ(loop.all.orders.size(), 1u);
  const model::Order& order = loop.all.orders[0];
  EXPECT_EQ(order.kind, InterventionKind::kWarmupExtension);
  EXPECT_EQ(order.basis, 52u);
  EXPECT_EQ(order.expires_boundary, 68u);
  EXPECT_EQ(order.intent_id, "r/1");
  ASSERT_EQ(order.sets.size(), 6u);
  // W' = 700: at step 54 the line of the stretched warm-up stands at 54/700 of the peak, below what is used.
  EXPECT_NEAR(order.sets[0].value, 0.01 * 54 / 700, 1e-8);
  EXPECT_NEAR(order.sets[1].value, 0.01 / 700, 1e-9);
  EXPECT_EQ(order.sets[2].value, 54);
  EXPECT_EQ(order.sets[3].value, 700);
  loop.Steps(2);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kApplied);
  EXPECT_EQ(loop.Intent(1).author, "kim");
  EXPECT_EQ(loop.Value(remedy::kRegisterRayUntil), 700);
}

TEST(Measures, WarmupExtensionGoesUnaskedInActWhileAPostNormModelWarmsUp) {
  MeasureLoop loop(In(Mode::kAct));
  loop.SayHello();
  loop.Steps(5);  // Absolute: it needs no 32 reports.
  loop.Find("ln_input", InterventionKind::kWarmupExtension, Signal::kLnInputMs);
  loop.Step();
  EXPECT_EQ(loop.all.orders.size(), 1u);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kSent);

  MeasureLoop late(In(Mode::kAct));
  late.SayHello();
  late.rate = 0.01;
  late.Steps(120);
  late.Find("ln_input", InterventionKind::kWarmupExtension, Signal::kLnInputMs);
  late.Step();
  EXPECT_TRUE(late.all.orders.empty());
  EXPECT_EQ(late.policy.pending(), 1u);

  model::ModelSpec pre = PostModel();
  pre.norm_placement = model::NormPlacement::kPre;
  MeasureLoop other(In(Mode::kAct), pre);
  other.SayHello();
  other.Steps(40);
  other.Find("warmup", InterventionKind::kWarmupExtension);
  other.Step();
  EXPECT_TRUE(other.all.orders.empty());
  EXPECT_EQ(other.policy.pending(), 1u);
}

TEST(Measures, OfARelativeFindingNeed32Reports) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.Find("grad_growth", InterventionKind::kLrScale);
  loop.Steps(31);
  EXPECT_EQ(loop.policy.pending(), 0u);
  ASSERT_EQ(loop.all.decisions.size(), 1u);
  EXPECT_THAT(loop.LastDecision(), HasSubstr("only 1 report came since the start, wanted 32"));
  loop.Step();
  EXPECT_EQ(loop.policy.pending(), 1u);
}

TEST(Measures, OfTheFirst16BoundariesAfterAChangeWait) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(40);
  ASSERT_TRUE(loop.Propose({.kind = InterventionKind::kGradClip, .max_norm = 1.0}).ok());
  ASSERT_TRUE(loop.Approve("r/1").ok());
  loop.Steps(3);
  ASSERT_EQ(loop.Intent(1).state, InterventionState::kApplied);
  loop.Find("grad_growth", InterventionKind::kLrScale);
  loop.Step();
  EXPECT_EQ(loop.policy.pending(), 0u);
  EXPECT_THAT(loop.LastDecision(), HasSubstr("the first 16 show the change"));
  loop.Steps(16);
  EXPECT_EQ(loop.policy.pending(), 1u);
}

TEST(Measures, AreNotBegunWhereTheJobDoesNotAllowThem) {
  MeasureLoop loop(In(Mode::kAct, {InterventionKind::kLrScale}));
  loop.hello.allow = {"qk_clip"};
  loop.SayHello();
  loop.Steps(40);
  loop.Find("grad_growth", InterventionKind::kLrScale);
  loop.Steps(5);
  EXPECT_TRUE(loop.all.changed.empty());
  ASSERT_EQ(loop.all.decisions.size(), 1u);
  EXPECT_EQ(loop.LastDecision(), "lr_scale is not on the job's allow-list");
  const absl::Status status = loop.Propose({.kind = InterventionKind::kHalt});
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(status.message(), "halt is not proposed: halt is not on the job's allow-list");
}

TEST(Measures, OfALastHundredthOfTheRunAreNotBegun) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.step = 955;
  loop.Steps(40);
  loop.Find("grad_growth", InterventionKind::kLrScale);
  loop.Step();
  EXPECT_EQ(loop.LastDecision(), "the run is in its last hundredth: nothing new is begun");
  EXPECT_TRUE(loop.Propose({.kind = InterventionKind::kCheckpoint}).ok());  // A request changes nothing.
}

TEST(Measures, AnUndeclaredScheduleIsNotExtended) {
  model::ModelSpec spec = PostModel();
  spec.schedule_peak.reset();
  MeasureLoop loop(In(Mode::kAct), spec);
  loop.SayHello();
  loop.Find("ln_input", InterventionKind::kWarmupExtension);
  loop.Steps(3);
  EXPECT_TRUE(loop.all.orders.empty());
  ASSERT_EQ(loop.all.decisions.size(), 1u);
  EXPECT_THAT(loop.LastDecision(), HasSubstr("the job does not declare its schedule"));
}

TEST(Measures, AlphaComesAfterTheLearningRateIsHeldDown) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(120);
  loop.Find("grad_profile", InterventionKind::kDeepnormAlpha, Signal::kLayerGradNorm);
  loop.Step();
  ASSERT_TRUE(loop.Approve("r/1").ok());
  loop.Steps(8);
  ASSERT_EQ(loop.all.orders.size(), 2u);
  EXPECT_EQ(loop.all.orders[0].kind, InterventionKind::kLrScale);
  EXPECT_NEAR(loop.all.orders[0].sets[0].value, 0.3, 1e-6);
  const model::Order& alpha = loop.all.orders[1];
  EXPECT_EQ(alpha.kind, InterventionKind::kDeepnormAlpha);
  EXPECT_EQ(alpha.ramp, 50u);
  ASSERT_EQ(alpha.sets.size(), 4u);
  EXPECT_NEAR(alpha.sets[3].value, std::pow(8.0, 0.25), 1e-5);  // (2 N)^(1/4).
  EXPECT_EQ(alpha.sets[3].id, remedy::kRegisterAlphas + 3);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kApplied);
  EXPECT_EQ(loop.Intent(1).orders_applied, 2u);
}

TEST(Measures, AlphaIsNotProposedWhereItsCompanionIsNotAllowed) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.hello.allow = {"deepnorm_alpha"};
  loop.SayHello();
  loop.Steps(40);
  const absl::Status status = loop.Propose({.kind = InterventionKind::kDeepnormAlpha, .alpha = 2.0});
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(status.message(), "deepnorm_alpha is not proposed: alpha comes with lr_scale 0.3 for 50 boundaries, and "
                              "lr_scale is not on the job's allow-list");
  loop.Find("grad_profile", InterventionKind::kDeepnormAlpha, Signal::kLayerGradNorm);
  loop.Step();
  EXPECT_EQ(loop.policy.pending(), 0u);
  EXPECT_THAT(loop.LastDecision(), HasSubstr("lr_scale is not on the job's allow-list"));
}

TEST(Measures, BetaIsNotProposedWhereNobodyScalesTheBranches) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(40);
  const Proposal wish{.kind = InterventionKind::kDeepnormAlpha, .alpha = 2.0, .beta = 0.5};
  EXPECT_THAT(std::string(loop.Propose(wish).message()), HasSubstr("the job declares no deepnorm_beta"));
  loop.hello.model.deepnorm_beta = 1;
  loop.SayHello();
  EXPECT_TRUE(loop.Propose(wish).ok());
}

TEST(Measures, EffectiveWhenWhatCalledForThemFell) {
  MeasureLoop loop(In(Mode::kAct));
  loop.SayHello();
  loop.norms = {0.01f, 1, 1, 1};
  loop.Steps(50);
  loop.Find("grad_profile", InterventionKind::kWarmupExtension, Signal::kLayerGradNorm);
  loop.Steps(3);
  loop.norms = {0.5f, 1, 1, 1};
  loop.Steps(110);  // A tenth of the run.
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kJudged);
  EXPECT_EQ(loop.Intent(1).outcome, Outcome::kEffective);
  EXPECT_THAT(loop.Intent(1).reason, HasSubstr("the last block's gradient over the first's stood at 100 in the"));
}

TEST(Measures, TwoFailuresDisableTheKind) {
  PolicyOptions options = In(Mode::kAct, {InterventionKind::kLrScale});
  options.lr_scale.for_boundaries = 50;
  model::ModelSpec spec = PostModel();
  spec.total_steps = 100000;
  MeasureLoop loop(options, spec);
  loop.SayHello();
  loop.Steps(210);
  loop.Find("divergence", InterventionKind::kLrScale);
  loop.Steps(210);
  EXPECT_EQ(loop.Intent(1).outcome, Outcome::kIneffective);
  EXPECT_THAT(loop.Intent(1).reason, HasSubstr("Ineffective: the loss stood at 3"));
  loop.Steps(200);
  EXPECT_EQ(loop.Intent(2).state, InterventionState::kApplied);
  loop.Steps(210);
  EXPECT_EQ(loop.Intent(2).outcome, Outcome::kIneffective);
  ASSERT_EQ(loop.all.findings.size(), 1u);
  EXPECT_THAT(loop.all.findings[0].message, HasSubstr("lr_scale is disabled for this run after 2 failures"));
  loop.Steps(300);
  EXPECT_EQ(loop.all.orders.size(), 2u);
  loop.SetMode(Mode::kAct);
  EXPECT_TRUE(loop.all.findings.back().step_end);
  loop.Step();
  EXPECT_EQ(loop.all.orders.size(), 3u);
}

TEST(Measures, HarmfulWhenTheLossIsNotFiniteAfterwards) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(50);
  ASSERT_TRUE(loop.Propose({.kind = InterventionKind::kLrScale}).ok());
  ASSERT_TRUE(loop.Approve("r/1").ok());
  loop.Steps(10);
  loop.loss = NAN;
  loop.Step();
  EXPECT_EQ(loop.Intent(1).outcome, Outcome::kHarmful);
}

TEST(Measures, NobodysFindingIsInconclusive) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(50);
  ASSERT_TRUE(loop.Propose({.kind = InterventionKind::kLrScale}).ok());
  ASSERT_TRUE(loop.Approve("r/1").ok());
  loop.loss = 2;
  loop.Steps(150);
  EXPECT_EQ(loop.Intent(1).outcome, Outcome::kInconclusive);
}

TEST(Measures, ARejectedKindRests) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(40);
  loop.Find("grad_growth", InterventionKind::kLrScale);
  loop.Step();
  ASSERT_TRUE(loop.Reject("r/1").ok());
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kRejected);
  loop.Steps(199);
  EXPECT_EQ(loop.policy.pending(), 0u);
  EXPECT_THAT(loop.LastDecision(), HasSubstr("kim rejected intent r/1"));
  loop.Steps(2);
  EXPECT_EQ(loop.policy.pending(), 1u);
}

TEST(Measures, AProposalWhoseCauseIsOverExpires) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(40);
  loop.Find("grad_growth", InterventionKind::kLrScale);
  loop.Step();
  loop.Over("grad_growth");
  loop.Steps(199);
  EXPECT_EQ(loop.policy.pending(), 1u);
  loop.Steps(2);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kExpired);
}

TEST(Measures, TheKillSwitchWithdrawsAll) {
  MeasureLoop loop(In(Mode::kAct, {InterventionKind::kLrScale}));
  loop.SayHello();
  loop.Steps(40);
  loop.delivers = false;
  loop.Find("grad_growth", InterventionKind::kLrScale);
  loop.Find("grad_profile", InterventionKind::kDeepnormAlpha, Signal::kLayerGradNorm);
  loop.Step();
  EXPECT_EQ(loop.policy.Open().size(), 2u);
  EXPECT_EQ(loop.policy.pending(), 1u);
  loop.SetMode(Mode::kObserve);
  EXPECT_TRUE(loop.policy.Open().empty());
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kWithdrawn);
  EXPECT_EQ(loop.Intent(2).state, InterventionState::kWithdrawn);
  const size_t orders = loop.all.orders.size();
  loop.Steps(50);
  EXPECT_EQ(loop.all.orders.size(), orders);
}

TEST(Measures, TheEpisodesDiagnosisAsksForACheckpointAndNamesTheLastHealthyStep) {
  MeasureLoop loop(In(Mode::kAct, {InterventionKind::kCheckpoint}));
  loop.SayHello();
  loop.Steps(10);
  loop.episode = {.since = 8, .recommend = InterventionKind::kCheckpoint, .headline = "A rank disagrees."};
  loop.Steps(3);
  EXPECT_EQ(loop.Intent(1).outcome, Outcome::kEffective);
  EXPECT_THAT(loop.Intent(1).reason, HasSubstr("The last healthy step is 7, before the first mover"));
  EXPECT_EQ(loop.Value(remedy::kRegisterCheckpoint), 1);
}

TEST(Measures, ARollbackIsJudgedByWhatHappened) {
  MeasureLoop loop(In(Mode::kAdvise));
  loop.SayHello();
  loop.Steps(40);
  ASSERT_TRUE(loop.Propose({.kind = InterventionKind::kRollback}).ok());
  ASSERT_TRUE(loop.Approve("r/1").ok());
  loop.Steps(3);
  loop.Restart(false);
  EXPECT_EQ(loop.Intent(1).outcome, Outcome::kEffective);
  loop.Steps(40);
  ASSERT_TRUE(loop.Propose({.kind = InterventionKind::kHalt}).ok());
  ASSERT_TRUE(loop.Approve("r/2").ok());
  loop.Steps(205);
  EXPECT_EQ(loop.Intent(2).outcome, Outcome::kIneffective);
}

TEST(Collect, AsksForEveryStepWhileAnEpisodeIsOpenAndThenForWhatWas) {
  MeasureLoop loop(In(Mode::kAdvise, {InterventionKind::kCollect}));
  loop.SayHello();
  for (int i = 0; i < 30; ++i) {
    loop.logits = i % 10 == 0 ? std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8} : std::vector<float>{};
    loop.Step();
  }
  EXPECT_TRUE(loop.all.orders.empty());
  loop.episode.since = 25;
  loop.Steps(3);
  EXPECT_EQ(loop.Value(remedy::kRegisterCollectEvery), 1);
  loop.episode.since.reset();
  loop.Steps(4);
  EXPECT_EQ(loop.Value(remedy::kRegisterCollectEvery), 10);
  EXPECT_EQ(loop.all.orders.size(), 2u);
  EXPECT_EQ(loop.Intent(1).state, InterventionState::kJudged);
}

}  // namespace
}  // namespace gyrostat::policy
