#include "detect/grad_profile.h"

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

constexpr auto kNanF = std::numeric_limits<float>::quiet_NaN();

model::ModelSpec Post(uint32_t layers, uint64_t warmup) {
  model::ModelSpec spec = Placed(NormPlacement::kPost, layers);
  spec.warmup_steps = warmup;
  return spec;
}
Maker Make(const model::ModelSpec& spec) {
  return [spec] { return std::make_unique<GradProfile>(GradProfileOptions(), spec); };
}
std::vector<float> Norms(size_t layers, double ratio) {
  std::vector<float> norms(layers, 1.f);
  norms[0] = static_cast<float>(1 / ratio);
  return norms;
}
void Give(Feed* feed, size_t layers, double ratio, int times) {
  for (int i = 0; i < times; ++i) feed->Array(Signal::kLayerGradNorm, Norms(layers, ratio));
}

TEST(GradProfile, SaysAtTheFirstReportThatAPostNormWarmupIsTooFast) {
  Feed feed(Make(Post(4, 100))());
  Give(&feed, 4, 8.5, 1);
  ASSERT_THAT(Brief(feed.said), ElementsAre("info 0.. open"));
  EXPECT_EQ(feed.said[0].recommend, model::InterventionKind::kWarmupExtension);
  EXPECT_EQ(feed.said[0].layer, 0u);
  EXPECT_NEAR(feed.said[0].value, 8.5, 1e-5);
}

TEST(GradProfile, BelowTheLimitAndBeyondTheWarmupItSaysNothing) {
  Feed below(Make(Post(4, 100))()), over(Make(Post(4, 0))());
  Give(&below, 4, 7.9, 50);
  Give(&over, 4, 30, 50);
  EXPECT_THAT(below.said, IsEmpty());
  EXPECT_THAT(over.said, IsEmpty());
}

TEST(GradProfile, LimitsGrowWithDepth) {
  Feed shallow(Make(Post(4, 1000))()), deep(Make(Post(24, 1000))());
  Give(&shallow, 4, 60, 20);
  Give(&deep, 24, 47, 20);
  EXPECT_THAT(Brief(shallow.said), ElementsAre("info 0.. open", "warning 0.. open"));
  EXPECT_THAT(deep.said, IsEmpty());
  Give(&deep, 24, 300, 20);
  EXPECT_EQ(deep.said.back().severity, model::Severity::kWarning);
}

TEST(GradProfile, AfterTheWarmupALastingCollapseWantsAlphaAndGetsCritical) {
  Feed feed(Make(Post(4, 0))());
  Give(&feed, 4, 500, 70);
  ASSERT_THAT(Brief(feed.said), ElementsAre("warning 4.. open", "critical 4.. open"));
  EXPECT_EQ(feed.said[0].recommend, model::InterventionKind::kDeepnormAlpha);
  EXPECT_THAT(feed.said[1].message, HasSubstr("60 reports in a row"));
  Give(&feed, 4, 2, 30);
  EXPECT_EQ(feed.said.back().healed, true);
}

TEST(GradProfile, OneWildOrMissingReportNeitherFiresNorHides) {
  Feed feed(Make(Post(4, 100))());
  Give(&feed, 4, 2, 10);
  Give(&feed, 4, 1e6, 2);
  feed.Array(Signal::kLayerGradNorm, {kNanF, 1, 1, 1});
  feed.Array(Signal::kLayerGradNorm, {model::kAbsent, 1, 1, 1});
  Give(&feed, 4, 2, 10);
  EXPECT_THAT(feed.said, IsEmpty());
  feed.Array(Signal::kLayerGradNorm, {kNanF, 1, 1, 1});
  Give(&feed, 4, 20, 4);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 27.. open"));
}

TEST(GradProfile, UnknownPlacementDisablesIt) {
  Feed feed(Make(Placed(NormPlacement::kUnknown, 4))());
  Give(&feed, 4, 1e5, 100);
  EXPECT_THAT(feed.said, IsEmpty());
}

// D_l = |g_l| sqrt(s_(l+1)) is flat in a pre-norm model; then the deep half's gradients grow.
std::vector<model::Report> Drifting(double per_layer) {
  return Reports(500, [per_layer](int step, model::Report* r) {
    testing::Lcg random(static_cast<uint64_t>(step));
    for (int l = 0; l < 12; ++l) {
      const double s = 1 + (l + 1), drift = step > 250 ? per_layer * std::min(1.0, (step - 250) / 40.0) * l : 0;
      r->MutableArray(Signal::kHiddenMs).push_back(static_cast<float>(s));
      r->MutableArray(Signal::kLayerGradNorm)
          .push_back(static_cast<float>(std::exp(0.05 * random.Normal() + drift) / std::sqrt(s)));
    }
    if (step % 50 == 7) r->MutableArray(Signal::kLayerGradNorm)[3] = kNanF;
    if (step % 50 == 9) r->MutableArray(Signal::kLayerGradNorm)[11] = 1e6f;
  });
}

TEST(GradProfile, ThePreNormInvariantDrifts) {
  const auto said = ExpectResumable(Make(Placed(NormPlacement::kPre, 12)), Drifting(0.2));
  ASSERT_FALSE(said.empty());
  EXPECT_EQ(said[0].severity, model::Severity::kInfo);
  EXPECT_GT(said[0].step_begin, 250);
  EXPECT_THAT(said[0].message, HasSubstr("towards the output"));
  EXPECT_NEAR(said[0].value, 0.2, 0.08);
}

TEST(GradProfile, AFlatInvariantIsNoDriftThoughTheGradientsFallWithDepth) {
  EXPECT_THAT(ExpectResumable(Make(Placed(NormPlacement::kPre, 12)), Drifting(0)), IsEmpty());
}

TEST(GradProfile, ResumesBitForBit) {
  const auto said = ExpectResumable(Make(Post(6, 60)), Reports(200, [](int step, model::Report* r) {
    testing::Lcg random(static_cast<uint64_t>(step));
    r->SetScalar(Signal::kLearningRate, 1e-3 * std::min(step + 1, 60));
    const double ratio = step < 120 ? std::exp(std::min(step, 60) * 0.1 + 0.2 * random.Normal()) : 1;
    r->MutableArray(Signal::kLayerGradNorm) = Norms(6, ratio);
  }));
  EXPECT_THAT(Brief(said), ElementsAre(HasSubstr("info"), HasSubstr("warning"), HasSubstr("critical"),
                                       HasSubstr("healed")));
}

TEST(GradProfile, ARestartEndsIt) {
  Feed feed(Make(Post(4, 100))());
  Give(&feed, 4, 20, 10);
  feed.Break(Break::kIntervention);
  EXPECT_EQ(feed.said.size(), 1u);
  feed.Break(Break::kNewAttempt);
  EXPECT_EQ(Brief(feed.said.back()), "info 0..9 ended");
}

}  // namespace
}  // namespace gyrostat::detect
