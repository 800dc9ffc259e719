#include "detect/warmup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/lcg.h"
#include "unit/detect/feed.h"
#include "unit/detect/resume.h"

namespace gyrostat::detect {
namespace {

using model::NormPlacement;
using model::Signal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Maker Make(NormPlacement placement, uint32_t vocab_size, uint64_t warmup) {
  model::ModelSpec spec = Placed(placement, 4);
  spec.vocab_size = vocab_size;
  spec.warmup_steps = warmup;
  return [spec] { return std::make_unique<Warmup>(WarmupOptions(), spec); };
}

// A loss that falls to `floor` within 50 steps and stands there.
double Stuck(int step, double floor) {
  testing::Lcg random(static_cast<uint64_t>(step) + 7);
  return floor + (5.5 - floor) * std::exp(-step / 12.0) + 0.05 * random.Normal();
}

TEST(Warmup, StandingStillNearTheUnigramEntropyIsAWarningThenCritical) {
  Feed feed(Make(NormPlacement::kPost, 256, 20)());
  for (int step = 0; step < 400; ++step) feed.Scalar(Signal::kLoss, step % 37 == 5 ? kNan : Stuck(step, 3.2));
  ASSERT_EQ(feed.said.size(), 2u);
  EXPECT_EQ(feed.said[0].severity, model::Severity::kWarning);
  EXPECT_LT(feed.said[0].step_detected, 180);
  EXPECT_EQ(feed.said[0].recommend, model::InterventionKind::kDeepnormAlpha);
  EXPECT_EQ(feed.said[1].severity, model::Severity::kCritical);
}

TEST(Warmup, WhereItStandsMatters) {
  Feed low(Make(NormPlacement::kPost, 256, 20)()), unknown(Make(NormPlacement::kPost, 0, 20)());
  for (int step = 0; step < 400; ++step) low.Scalar(Signal::kLoss, Stuck(step, 2.7));
  // Neither vocabulary nor first step: how much a model that knows nothing loses is not known.
  unknown.Give([](model::Report* r) { r->step = 1000; });
  for (int step = 0; step < 400; ++step)
    unknown.Give([step](model::Report* r) { r->step = 1001 + step, r->SetScalar(Signal::kLoss, Stuck(step, 3.2)); });
  EXPECT_THAT(low.said, IsEmpty());
  EXPECT_THAT(unknown.said, IsEmpty());
}

TEST(Warmup, TheFirstLossStandsInForTheVocabulary) {
  Feed feed(Make(NormPlacement::kPost, 0, 20)());
  for (int step = 0; step < 250; ++step) feed.Scalar(Signal::kLoss, Stuck(step, 3.2));
  EXPECT_EQ(feed.said.size(), 1u);
}

TEST(Warmup, GradientsThatReachTheFirstBlockSayItStillLearns) {
  Feed feed(Make(NormPlacement::kPost, 256, 20)());
  for (int step = 0; step < 400; ++step)
    feed.Give([step](model::Report* r) {
      r->SetScalar(Signal::kLoss, Stuck(step, 3.2));
      r->MutableArray(Signal::kLayerGradNorm) = {1, 1, 1, 2};
    });
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(Warmup, ALossThatTurnsWhileTheRateRises) {
  Feed feed(Make(NormPlacement::kPre, 256, 900)());
  for (int step = 0; step < 500; ++step)
    feed.Give([step](model::Report* r) {
      testing::Lcg random(static_cast<uint64_t>(step));
      r->SetScalar(Signal::kLearningRate, 1e-4 * (step + 1));
      r->SetScalar(Signal::kLoss, 2.5 + std::max(0, step - 300) * 0.003 + 0.05 * random.Normal());
    });
  ASSERT_EQ(feed.said.size(), 1u);
  EXPECT_EQ(feed.said[0].recommend, model::InterventionKind::kLrScale);
  EXPECT_GT(feed.said[0].step_begin, 350);
  EXPECT_NEAR(feed.said[0].expected, 2.5, 0.05);
}

TEST(Warmup, AWildBatchWhileTheRateRisesIsNoTurn) {
  Feed feed(Make(NormPlacement::kPre, 256, 900)());
  for (int step = 0; step < 300; ++step)
    feed.Give([step](model::Report* r) {
      r->SetScalar(Signal::kLearningRate, 1e-4 * (step + 1));
      r->SetScalar(Signal::kLoss, step >= 100 && step < 112 ? 9 : 2.5);
    });
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(Warmup, ResumesBitForBit) {
  const auto said = ExpectResumable(Make(NormPlacement::kPost, 256, 20), Reports(300, [](int step, model::Report* r) {
    r->SetScalar(Signal::kLearningRate, 1e-3 * std::min(step + 1, 20));
    r->SetScalar(Signal::kLoss, step % 41 == 3 ? kInf : Stuck(step, 3.2));
  }), 200);
  EXPECT_THAT(Brief(said), ElementsAre(HasSubstr("warning"), HasSubstr("ended"), HasSubstr("open")));
}

}  // namespace
}  // namespace gyrostat::detect
