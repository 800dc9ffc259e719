// Orders of other kinds than qk_clip on a job of one rank: from the daemon to the registers, the trainer and the rate.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "client/src/state.h"
#include "remedy/ticks.h"
#include "unit/client/trainer_double.h"

namespace gyrostat::client {
namespace {

using model::AckOutcome;
using model::InterventionKind;

// A post-norm model that warms up, and a job that allows everything.
Settings PostNorm() {
  Settings settings = SmallModel();
  settings.allow = {"qk_clip",   "warmup_extension", "deepnorm_alpha", "lr_scale", "grad_clip",
                    "skip_step", "checkpoint",       "rollback",       "halt",     "collect"};
  settings.model.norm_placement = model::NormPlacement::kPost;
  settings.model.deepnorm_beta = 1;
  settings.model.schedule_peak = 1e-3;
  settings.model.warmup_steps = 100;
  settings.model.total_steps = 10000;
  return settings;
}

class RegisterOrders : public ::testing::Test {
 protected:
  explicit RegisterOrders(Settings settings = PostNorm()) : t_(std::move(settings)) { t_.Step({20}); }

  model::Order Order(InterventionKind kind, std::vector<model::RegisterSet> sets, uint32_t ramp = 0) {
    model::Order order;
    order.id.bytes.fill(++sent_);
    order.run = t_.shared.settings.run;
    order.attempt = t_.shared.attempt;
    order.epoch = t_.actuator.epoch();
    order.basis = t_.recorder.boundary();
    order.expires_boundary = order.basis + 16;
    order.intent_id = "test/1";
    order.kind = kind;
    order.sets = std::move(sets);
    order.ramp = ramp;
    return order;
  }
  model::Ack Answered(const model::Order& order) {
    t_.daemon.Send(order);
    t_.Apply();
    EXPECT_FALSE(t_.daemon.acks().empty());
    return t_.daemon.acks().empty() ? model::Ack{} : t_.daemon.acks().back();
  }
  float Value(uint32_t id) { return t_.actuator.registers().file().at(id).At(t_.recorder.boundary()); }

  TrainerDouble t_;
  uint8_t sent_ = 0;
};

TEST_F(RegisterOrders, TheTrainerSeesWhatToSetAndTheAckSetsIt) {
  t_.daemon.Send(Order(InterventionKind::kDeepnormAlpha, {{64, 2, 0}, {65, 4, 0}, {1088, 0.5f, 0}}, 50));
  t_.sender.Turn();
  const auto order = t_.Poll();
  ASSERT_TRUE(order.has_value());
  EXPECT_STREQ(order->kind, "deepnorm_alpha");
  EXPECT_STREQ(order->intent_id, "test/1");
  EXPECT_EQ(order->ramp, 50u);
  EXPECT_EQ(order->q_count + order->k_count, 0u);
  ASSERT_EQ(order->register_count, 3u);
  EXPECT_EQ(order->registers[1].id, static_cast<uint32_t>(GYRO_REGISTER_ALPHA + 1));
  EXPECT_EQ(order->registers[1].from, 1);
  EXPECT_EQ(order->registers[1].value, 4);
  EXPECT_EQ(Value(65), 1) << "only the ack sets it";
  t_.Ack(*order, GYRO_APPLIED);
  EXPECT_EQ(Value(65), 1);
  EXPECT_EQ(Value(1088), 0.5f) << "betas scale weights: at once";
  const model::Ack ack = t_.daemon.acks().back();
  EXPECT_EQ(ack.outcome, AckOutcome::kApplied);
  EXPECT_EQ(ack.reason, "alpha and beta are part of the checkpoint from now on");
  EXPECT_NE(ack.state_digest, 0u);
  for (int i = 0; i < 25; ++i) t_.Step({20});
  EXPECT_NEAR(Value(65), 2, 1e-5);
  for (int i = 0; i < 25; ++i) t_.Step({20});
  EXPECT_EQ(Value(65), 4);
  EXPECT_EQ(t_.error(), "");
}

TEST_F(RegisterOrders, ASecondDeliveryIsVoid) {
  model::Order order = Order(InterventionKind::kLrScale, {{0, 0.3f, 0}, {1, 0, 0}});
  EXPECT_EQ(Answered(order).outcome, AckOutcome::kApplied);
  EXPECT_EQ(Answered(order).outcome, AckOutcome::kApplied) << "the same id: the outcome is said again";
  order.id.bytes.fill(99);
  const model::Ack again = Answered(order);
  EXPECT_EQ(again.outcome, AckOutcome::kVoid);
  EXPECT_EQ(again.reason, "lr_scale was set 1 times, the order expects 0");
}

TEST_F(RegisterOrders, ARefusalOfTheTrainerSetsNothing) {
  t_.daemon.Send(Order(InterventionKind::kGradClip, {{2, 0.5f, 0}}));
  t_.sender.Turn();
  const auto order = t_.Poll();
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->registers[0].from, 0) << "never set";
  t_.Ack(*order, GYRO_REFUSED, "this loop never clips");
  EXPECT_EQ(Value(2), 0);
  EXPECT_EQ(t_.daemon.acks().back().reason, "this loop never clips");
  EXPECT_EQ(Answered(Order(InterventionKind::kGradClip, {{2, 0.5f, 0}})).outcome, AckOutcome::kApplied);
}

TEST_F(RegisterOrders, TheRateFollowsRaysAndScale) {
  EXPECT_EQ(t_.actuator.Rate(5e-4, 2), 5e-4);
  // The line of a warm-up seven times as long, from boundary 2 on.
  ASSERT_EQ(Answered(Order(InterventionKind::kWarmupExtension, {{16, 7e-5f, 0}, {17, 1.43e-6f, 0}, {18, 2, 0},
                                                               {19, 652, 0}, {20, 0, 0}, {21, 1, 0}})).outcome,
            AckOutcome::kApplied);
  EXPECT_NEAR(t_.actuator.Rate(5e-4, 2), 7e-5, 1e-11);
  EXPECT_NEAR(t_.actuator.Rate(5e-4, 102), 7e-5 + 100 * 1.43e-6, 1e-10);
  EXPECT_EQ(t_.actuator.Rate(1e-5, 2), 1e-5) << "never above the job's own";
  ASSERT_EQ(Answered(Order(InterventionKind::kLrScale, {{0, 0.5f, 0}, {1, 4, 0}})).outcome, AckOutcome::kApplied);
  std::vector<double> rates;
  for (model::Boundary b = 2; b < 8; ++b) {
    rates.push_back(t_.actuator.Rate(1e-5, b));
    EXPECT_EQ(t_.actuator.Rate(2e-5, b), 2 * rates.back()) << "another group's base";
    t_.Step({20});
    t_.actuator.EndStep(b);
  }
  EXPECT_EQ(rates, (std::vector<double>{5e-6, 5e-6, 5e-6, 1e-5, 1e-5, 1e-5}));
}

TEST_F(RegisterOrders, AStateGoesOnInTheNextAttempt) {
  ASSERT_EQ(Answered(Order(InterventionKind::kDeepnormAlpha, {{64, 4, 0}}, 100)).outcome, AckOutcome::kApplied);
  ASSERT_EQ(Answered(Order(InterventionKind::kLrScale, {{0, 0.5f, 0}, {1, 40, 0}})).outcome, AckOutcome::kApplied);
  while (t_.recorder.boundary() < 26) t_.Step({20});
  const float alpha = Value(64);
  const std::string bytes = SaveState(t_.shared.attempt, t_.actuator.epoch(), t_.recorder.boundary(),
                                      t_.actuator.ledger(), t_.actuator.Outcomes(), t_.actuator.registers());
  TrainerDouble next(PostNorm());
  std::string error;
  ASSERT_EQ(next.actuator.NewEpoch(next.Here(), LoadState(bytes, 2, 4, &error)), GYRO_OK) << next.error();
  EXPECT_EQ(next.actuator.registers().file().at(64).At(0), alpha);
  EXPECT_EQ(next.actuator.registers().file().at(64).At(75), 4);
  EXPECT_EQ(next.actuator.Rate(1, 14), 0.5);
  EXPECT_EQ(next.actuator.Rate(1, 15), 1);
  next.sender.Turn();
  const model::Hello hello = next.daemon.hellos().back();
  ASSERT_EQ(hello.registers.size(), 3u);
  EXPECT_EQ(hello.registers[1].id, 1u);
  EXPECT_EQ(hello.registers[1].to, 14) << "the boundary as this attempt counts";
  EXPECT_EQ(hello.registers[2].first, -25);
  EXPECT_EQ(hello.registers[2].version, 1u);
}

TEST_F(RegisterOrders, AHelloTellsWhatWasEverSet) {
  EXPECT_TRUE(t_.daemon.hellos().back().registers.empty());
  ASSERT_EQ(Answered(Order(InterventionKind::kHalt, {{6, 1, 0}})).outcome, AckOutcome::kApplied);
  t_.daemon.GoDown();
  t_.sender.Turn();
  t_.daemon.GoUp();
  t_.sender.Turn();
  const auto registers = t_.daemon.hellos().back().registers;
  ASSERT_EQ(registers.size(), 1u);
  EXPECT_EQ(registers[0], (model::RegisterReading{.id = 6, .from = 0, .to = 1, .first = 1, .version = 1}));
}

TEST_F(RegisterOrders, ANewEpochForgetsThem) {
  ASSERT_EQ(Answered(Order(InterventionKind::kLrScale, {{0, 0.5f, 0}, {1, 0, 0}})).outcome, AckOutcome::kApplied);
  ASSERT_EQ(t_.actuator.NewEpoch(t_.Here(), nullptr), GYRO_OK);
  EXPECT_EQ(t_.actuator.Rate(1, 2), 1);
  t_.sender.Turn();
  EXPECT_TRUE(t_.daemon.hellos().back().registers.empty());
}

TEST_F(RegisterOrders, TheKillSwitchRefusesEverything) {
  t_.actuator.Hold("layer 3 was replaced");
  EXPECT_EQ(Answered(Order(InterventionKind::kHalt, {{6, 1, 0}})).reason, "layer 3 was replaced");
  t_.Step({60});
  t_.daemon.Send(t_.Clip(2, 60, 30, 0, 1, 77));
  EXPECT_EQ(t_.Apply(), 0);
  EXPECT_EQ(t_.daemon.acks().back().outcome, AckOutcome::kRefused);
  EXPECT_EQ(t_.daemon.acks().back().reason, "layer 3 was replaced");
  t_.daemon.Send(t_.Local(30, 78));
  EXPECT_EQ(t_.Apply(), 0);
  EXPECT_FALSE(t_.actuator.local_mode());
  t_.actuator.Hold(nullptr);
  EXPECT_EQ(Answered(Order(InterventionKind::kHalt, {{6, 1, 0}})).outcome, AckOutcome::kApplied);
}

struct Wrong {
  const char* name;
  InterventionKind kind;
  std::vector<model::RegisterSet> sets;
  uint32_t ramp;
  AckOutcome outcome;
  const char* reason;
};

class WrongSets : public RegisterOrders, public ::testing::WithParamInterface<Wrong> {};

TEST_P(WrongSets, AreAnsweredInWordsAndNeverHandedOut) {
  const Wrong& wrong = GetParam();
  const uint64_t before = t_.actuator.registers().HashAt(1);
  t_.daemon.Send(Order(wrong.kind, wrong.sets, wrong.ramp));
  EXPECT_EQ(t_.Apply(), 0);
  ASSERT_EQ(t_.daemon.acks().size(), 1u);
  EXPECT_EQ(t_.daemon.acks()[0].outcome, wrong.outcome);
  EXPECT_EQ(t_.daemon.acks()[0].reason, wrong.reason);
  EXPECT_EQ(t_.actuator.registers().HashAt(1), before);
}

constexpr auto kNo = AckOutcome::kRefused;
INSTANTIATE_TEST_SUITE_P(
    All, WrongSets,
    ::testing::Values(
        Wrong{"None", InterventionKind::kHalt, {}, 0, kNo, "halt sets 0 registers, wanted 1 to 340"},
        Wrong{"HalfAGroup", InterventionKind::kLrScale, {{0, 0.5f, 0}}, 0, kNo,
              "lr_scale sets 1 registers from lr_scale, wanted all 2 from lr_scale"},
        Wrong{"AnotherKindsRegister", InterventionKind::kGradClip, {{3, 9, 0}}, 0, kNo,
              "grad_clip sets 1 registers from the step to skip, wanted all 1 from grad_clip"},
        Wrong{"OutOfOrder", InterventionKind::kLrScale, {{1, 0, 0}, {0, 0.5f, 0}}, 0, kNo,
              "lr_scale is out of order or named twice"},
        Wrong{"ScaleAboveOne", InterventionKind::kLrScale, {{0, 1.01f, 0}, {1, 0, 0}}, 0, kNo,
              "lr_scale is 1.00999999, wanted 0.00999999978 to 1"},
        Wrong{"ScaleTooSmall", InterventionKind::kLrScale, {{0, 0.009f, 0}, {1, 0, 0}}, 0, kNo,
              "lr_scale is 0.00899999961, wanted 0.00999999978 to 1"},
        Wrong{"ScaleUntilThePast", InterventionKind::kLrScale, {{0, 0.5f, 0}, {1, 1, 0}}, 0, AckOutcome::kVoid,
              "the last boundary of lr_scale is boundary 1, and boundary 1 has passed"},
        Wrong{"ScaleThatRamps", InterventionKind::kLrScale, {{0, 0.5f, 0}, {1, 0, 0}}, 5, kNo,
              "lr_scale moves over 5 boundaries, wanted 0: at once"},
        Wrong{"AlphaTooFar", InterventionKind::kDeepnormAlpha, {{64, 5.1f, 0}}, 50, kNo,
              "alpha of layer 0 goes from 1 to 5.0999999, wanted at most a factor of 5"},
        Wrong{"AlphaTooSlow", InterventionKind::kDeepnormAlpha, {{64, 2, 0}}, 201, kNo,
              "alpha of layer 0 moves over 201 boundaries, wanted at most 200"},
        Wrong{"AlphaOfNoLayer", InterventionKind::kDeepnormAlpha, {{66, 2, 0}}, 50, kNo,
              "alpha of layer 2 does not exist: the model has 2 layers"},
        Wrong{"AlphaNotANumber", InterventionKind::kDeepnormAlpha, {{64, -1, 0}}, 50, kNo,
              "alpha of layer 0 is -1, wanted 9.99999997e-07 to 1000000"},
        Wrong{"BetaThatRises", InterventionKind::kDeepnormAlpha, {{1089, 1.5f, 0}}, 0, kNo,
              "beta of layer 1 is 1.5, wanted 1.17549435e-38 to 1"},
        Wrong{"BetaTooFar", InterventionKind::kDeepnormAlpha, {{1089, 0.09f, 0}}, 0, kNo,
              "beta of layer 1 goes from 1 to 0.0900000036, wanted at most a factor of 10"},
        Wrong{"GradClipOfZero", InterventionKind::kGradClip, {{2, 0, 0}}, 0, kNo,
              "grad_clip is 0, wanted 1.17549435e-38 to 3.40282347e+38"},
        Wrong{"SkipOfThePast", InterventionKind::kSkipStep, {{3, 1, 0}}, 0, AckOutcome::kVoid,
              "the step to skip is boundary 1, and boundary 1 has passed"},
        Wrong{"SkipOfHalfAStep", InterventionKind::kSkipStep, {{3, 1.5f, 0}}, 0, kNo,
              "the step to skip is 1.5, wanted a whole number"},
        Wrong{"CollectTooRarely", InterventionKind::kCollect, {{7, 10001, 0}}, 0, kNo,
              "collect is 10001, wanted 1 to 10000"},
        Wrong{"RayTooSteep", InterventionKind::kWarmupExtension,
              {{16, 1e-4f, 0}, {17, 1.01e-5f, 0}, {18, 2, 0}, {19, 700, 0}, {20, 0, 0}, {21, 1, 0}}, 0, kNo,
              "the ray rises by 1.00999996e-05 a step, wanted between 0 and the declared warm-up's 1.00000012e-05"},
        Wrong{"RayTooLong", InterventionKind::kWarmupExtension,
              {{16, 1e-4f, 0}, {17, 1e-6f, 0}, {18, 2, 0}, {19, 803, 0}, {20, 0, 0}, {21, 1, 0}}, 0, kNo,
              "the extension lasts 801 steps, wanted 1 to 800, 8 times the declared warm-up"},
        Wrong{"NotchBeforeTheBeginning", InterventionKind::kWarmupExtension,
              {{16, 1e-4f, 0}, {17, 1e-6f, 0}, {18, 2, 0}, {19, 103, 0}, {20, 3, 0}, {21, 0.3f, 0}}, 0, kNo,
              "the notch falls for 3 boundaries before boundary 2, wanted no more than there were"}),
    [](const ::testing::TestParamInfo<Wrong>& each) { return each.param.name; });

TEST(RegisterTerms, WhatAJobDoesNotDeclareCannotBeChanged) {
  const auto reason = [](Settings settings, InterventionKind kind, std::vector<model::RegisterSet> sets) {
    TrainerDouble t(std::move(settings));
    t.Step({20});
    return JudgeSets(t.shared.settings.model, t.actuator.registers().file(), t.actuator.registers().envelope(), kind,
                     sets, 0, 1).reason;
  };
  Settings pre = PostNorm(), deepnorm = PostNorm(), constant = PostNorm(), blank = PostNorm();
  pre.model.norm_placement = model::NormPlacement::kPre;
  blank.model.norm_placement = model::NormPlacement::kUnknown;
  deepnorm.model.norm_placement = model::NormPlacement::kDeepnorm;
  constant.model.warmup_steps.reset();
  EXPECT_EQ(reason(pre, InterventionKind::kDeepnormAlpha, {{64, 2, 0}}),
            "alpha of layer 0 cannot be changed: the norm placement is pre, wanted post or deepnorm");
  EXPECT_EQ(reason(blank, InterventionKind::kDeepnormAlpha, {{64, 2, 0}}),
            "alpha of layer 0 cannot be changed: the norm placement is not declared, wanted post or deepnorm");
  EXPECT_EQ(reason(deepnorm, InterventionKind::kDeepnormAlpha, {{64, 2, 0}}),
            "alpha of layer 0 cannot be changed: the job declares no deepnorm_alpha, wanted the one it trains with");
  deepnorm.model.deepnorm_alpha = 2.2;
  deepnorm.model.deepnorm_beta.reset();
  EXPECT_EQ(reason(deepnorm, InterventionKind::kDeepnormAlpha, {{64, 4, 0}, {1088, 0.5f, 0}}),
            "beta of layer 0 cannot be changed: the job declares no deepnorm_beta");
  EXPECT_EQ(reason(deepnorm, InterventionKind::kDeepnormAlpha, {{64, 11, 0}}), "");
  EXPECT_EQ(reason(deepnorm, InterventionKind::kDeepnormAlpha, {{64, 0.4f, 0}}),
            "alpha of layer 0 goes from 2.20000005 to 0.400000006, wanted at most a factor of 5");
  EXPECT_EQ(reason(constant, InterventionKind::kWarmupExtension,
                   {{16, 1e-4f, 0}, {17, 1e-6f, 0}, {18, 2, 0}, {19, 700, 0}, {20, 0, 0}, {21, 1, 0}}),
            "the job declares no warm-up and peak, wanted both to judge an extension by");
}

TEST(RegisterTerms, ARayOfThePlannersPassesThoughFloatRoundsIt) {
  Settings settings = PostNorm();
  for (uint64_t step = 1; step < 100; ++step) {
    std::string why;
    remedy::WarmupRequest request{.step = step, .boundary = step};
    request.effective_rate = 1e-5 * static_cast<double>(step);
    request.schedule.kind = model::ScheduleKind::kLinear;
    request.schedule.peak = 1e-3;
    request.schedule.warmup = 100;
    request.schedule.total = 10000;
    const auto planned = remedy::PlanWarmup(request, {}, &why);
    ASSERT_TRUE(planned) << why;
    const std::vector<model::RegisterSet> sets = {{16, static_cast<float>(planned->ray.rate), 0},
                                                  {17, static_cast<float>(planned->ray.slope), 0},
                                                  {18, static_cast<float>(planned->ray.boundary), 0},
                                                  {19, static_cast<float>(planned->ray.until), 0},
                                                  {20, 0, 0},
                                                  {21, 1, 0}};
    JobRegisters registers(&settings.model);
    EXPECT_EQ(registers.Judge(InterventionKind::kWarmupExtension, sets, 0, step).reason, "") << step;
  }
}

TEST(RegisterTerms, NoMoreThanEightExtensionsAreInForce) {
  Settings settings = PostNorm();
  JobRegisters registers(&settings.model);
  for (uint32_t i = 0; i <= 8; ++i) {
    const std::vector<model::RegisterSet> sets = {{16, 1e-4f, i}, {17, 1e-6f, i}, {18, 2, i},
                                                  {19, 700, i},   {20, 0, i},     {21, 1, i}};
    const SetsVerdict verdict = registers.Judge(InterventionKind::kWarmupExtension, sets, 0, 2);
    EXPECT_EQ(verdict.reason, i < 8 ? "" : "8 extensions are in force, wanted fewer than 8");
    if (verdict.reason.empty()) registers.Apply(InterventionKind::kWarmupExtension, sets, 0, 2);
  }
}

}  // namespace
}  // namespace gyrostat::client
