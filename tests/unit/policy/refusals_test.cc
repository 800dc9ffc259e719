// When doing nothing is right: every "no" of the policy, with its sentence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness.h"

namespace gyrostat::policy {
namespace {

using model::Mode;
using ::testing::HasSubstr;

const std::vector<double> kHot = {10, 60, 12, 13};

// What the policy says in act when a head is hot and the job is as `change` makes it. Nothing may be ordered.
template <class Change>
std::string WhyNot(Change&& change) {
  Loop loop(Options(Mode::kAct));
  change(&loop);
  loop.SayHello();
  loop.Steps(3, kHot);
  EXPECT_TRUE(loop.all.orders.empty());
  EXPECT_TRUE(loop.all.changed.empty());
  EXPECT_EQ(loop.all.decisions.size(), 1u) << "said once";
  if (loop.all.decisions.empty()) return "";
  EXPECT_FALSE(loop.all.decisions[0].acted);
  return loop.all.decisions[0].reason;
}

TEST(Refusal, ComesFromTheJobsOwnBounds) {
  EXPECT_EQ(WhyNot([](Loop* loop) { loop->client.hello.allow = {"lr_scale"}; }),
            "qk_clip is not on the job's allow-list");
  EXPECT_EQ(WhyNot([](Loop* loop) { loop->client.hello.allow.clear(); }), "qk_clip is not on the job's allow-list");
  EXPECT_EQ(WhyNot([](Loop* loop) { loop->client.hello.tau_min = 50; }), "tau is 30, below the job's tau_min of 50");
  EXPECT_EQ(WhyNot([](Loop* loop) { loop->client.hello.world_size = 8; }),
            "the job has 8 ranks that do not agree, wanted 1, or a client that was given the job's collective");
}

TEST(Refusal, DoesNotComeFromRanksThatAgree) {
  Loop loop(Options(Mode::kAct));
  loop.client.hello.world_size = 8;
  loop.client.hello.agreement_lag = 1;
  loop.SayHello();
  loop.Steps(1, kHot);
  EXPECT_FALSE(loop.all.orders.empty());
}

TEST(Refusal, ComesFromAModelThatCannotBeClipped) {
  EXPECT_THAT(WhyNot([](Loop* loop) {
                loop->client.hello.model.attention = model::Attention::kMla;
                loop->client.hello.model.qk_norm = model::QkNorm::kPerHead;
              }),
              HasSubstr("attention is mla with qk_norm per_head"));
  EXPECT_THAT(WhyNot([](Loop* loop) { loop->client.hello.model.attention = model::Attention::kUnknown; }),
              HasSubstr("does not say which attention it has"));
  EXPECT_THAT(WhyNot([](Loop* loop) { loop->client.hello.model.qk_norm = model::QkNorm::kUnknown; }),
              HasSubstr("does not say whether queries and keys are normalized"));
}

TEST(Refusal, ComesFromMaximaThatAreNotWhatTheSoftmaxSees) {
  EXPECT_THAT(WhyNot([](Loop* loop) { loop->client.hello.attn_logit.kind = model::LogitKind::kNormProduct; }),
              HasSubstr("of kind norm_product, wanted exact or lse_upper"));
  EXPECT_THAT(WhyNot([](Loop* loop) { loop->client.hello.attn_logit.scaled = false; }), HasSubstr("are unscaled"));
  EXPECT_THAT(WhyNot([](Loop* loop) { loop->client.hello.attn_logit.masked = false; }), HasSubstr("are unmasked"));
  EXPECT_THAT(WhyNot([](Loop* loop) { loop->client.hello.model.logit_softcap = 50; }), HasSubstr("after the soft-cap"));
}

TEST(Refusal, ListensToTheReportsOwnKind) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  model::Report report = loop.client.Forward(kHot);
  report.attn_logit_kind = model::LogitKind::kSampledLower;
  loop.Report(report);
  EXPECT_TRUE(loop.all.orders.empty());
  EXPECT_THAT(loop.LastDecision(), HasSubstr("sampled_lower"));
}

TEST(Refusal, IsSaidBeforeAnyHeadIsHot) {
  Loop loop(Options(Mode::kAct));
  loop.client.hello.world_size = 2;
  loop.SayHello();
  loop.Steps(5, {1, 2, 3, 4});
  ASSERT_EQ(loop.all.decisions.size(), 1u);
  EXPECT_EQ(loop.all.decisions[0].step, 101);
}

TEST(Refusal, ComesFromAMaximumThatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), HUGE_VALF, -HUGE_VALF}) {
    Loop loop(Options(Mode::kAct));
    loop.SayHello();
    model::Report report = loop.client.Forward(kHot);
    report.MutableArray(model::Signal::kAttnLogitMax)[2] = bad;
    loop.Report(report);
    EXPECT_TRUE(loop.all.orders.empty());
    EXPECT_THAT(loop.LastDecision(), HasSubstr("the maximum of 1 head is not finite, first L1 H0 at "));
  }
}

TEST(Refusal, IsNotAboutHeadsThatWereNotMeasured) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  model::Report report = loop.client.Forward(kHot);
  report.MutableArray(model::Signal::kAttnLogitMax)[2] = model::kAbsent;
  loop.Report(report);
  EXPECT_EQ(loop.all.orders.size(), 1u);
}

TEST(Refusal, ComesFromAStepThatOverflowed) {
  for (const model::Signal signal : {model::Signal::kLoss, model::Signal::kGradNorm}) {
    Loop loop(Options(Mode::kAct));
    loop.SayHello();
    model::Report report = loop.client.Forward(kHot);
    report.SetScalar(signal, HUGE_VAL);
    loop.Report(report);
    EXPECT_TRUE(loop.all.orders.empty());
    EXPECT_EQ(loop.LastDecision(), "loss or gradient of this step is not finite");
  }
}

TEST(Refusal, ComesFromHeadsThatAllLookAlike) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Step({60, 60, 60, 60});
  EXPECT_TRUE(loop.all.orders.empty());
  EXPECT_EQ(loop.LastDecision(), "all heads show one maximum, 60: the measurement sees something else than the heads");
}

TEST(Refusal, ComesFromTheLastHundredthOfTheRunButOnlyToWhatIsNew) {
  Loop late(Options(Mode::kAct));
  late.client.hello.model.total_steps = 103;
  late.SayHello();
  late.Step(kHot);  // Step 101 of 103.
  EXPECT_EQ(late.all.orders.size(), 1u);
  late.Step({10, 200, 12, 13});  // Step 102: the intent is open, and goes on.
  EXPECT_EQ(late.all.orders.size(), 2u);

  Loop later(Options(Mode::kAct));
  later.client.hello.model.total_steps = 102;
  later.SayHello();
  later.Step(kHot);
  EXPECT_TRUE(later.all.orders.empty());
  EXPECT_EQ(later.LastDecision(), "the run is in its last hundredth: nothing new is begun");
}

TEST(Refusal, KeepsOutOfTheDeadBandWithoutAMaster) {
  Loop loop(Options(Mode::kAct));
  loop.client.hello.model.master_fp32 = false;
  loop.SayHello();
  loop.Steps(3, {10, 30.5, 12, 13});
  EXPECT_TRUE(loop.all.orders.empty());
  EXPECT_EQ(loop.LastDecision(),
            "1 head above tau 30, worst L0 H1 at 30.5, inside the dead band up to 30.6 of weights "
            "without an fp32 master");
  loop.Step({10, 30.7, 12, 13});
  ASSERT_EQ(loop.all.orders.size(), 1u);
  loop.Step({10, 31, 12, 13});
  EXPECT_EQ(loop.all.orders.size(), 1u) << "what is left to do is inside the band";
  loop.Step({10, 33, 12, 13});
  EXPECT_EQ(loop.all.orders.size(), 2u);
}

TEST(Refusal, ComesFromEvidenceThatIsOld) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  const model::Report report = loop.client.Forward(kHot);
  loop.Call([&](PolicyOutput* out) { loop.policy.OnReport(report, report.boundary + 16, out); });
  EXPECT_TRUE(loop.all.orders.empty());
  EXPECT_EQ(loop.LastDecision(),
            "the report is of boundary 1, the job is at 17: evidence older than 16 boundaries orders nothing");
  const model::Report next = loop.client.Forward(kHot);
  loop.Call([&](PolicyOutput* out) { loop.policy.OnReport(next, next.boundary + 15, out); });
  EXPECT_EQ(loop.all.orders.size(), 1u);
}

TEST(Refusal, IsSilentWithoutMaxima) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Report(loop.client.Forward({}));
  EXPECT_TRUE(loop.all.decisions.empty());
}

TEST(Refusal, OutlivesAModelOfUnknownShape) {
  Loop loop(Options(Mode::kAct), model::ModelSpec());
  loop.SayHello();
  model::Report report;
  report.boundary = 1;
  report.MutableArray(model::Signal::kAttnLogitMax) = {50, 60};
  loop.Report(report);
  EXPECT_TRUE(loop.all.orders.empty());
  EXPECT_EQ(loop.LastDecision(), "the model has 0 layers and 0 heads, wanted both known and at most 1024");
}

TEST(Refusal, IsTheAnswerBeforeAnyHelloAndAfterTheEnd) {
  Loop loop(Options(Mode::kAct));
  loop.Step(kHot);
  EXPECT_TRUE(loop.all.orders.empty());
  loop.SayHello();
  loop.Call([&](PolicyOutput* out) { loop.policy.OnEnd(out); });
  loop.Step(kHot);
  EXPECT_TRUE(loop.all.orders.empty());
}

}  // namespace
}  // namespace gyrostat::policy
