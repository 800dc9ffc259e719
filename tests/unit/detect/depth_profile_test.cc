#include "detect/depth_profile.h"

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

constexpr int kLayers = 16;

Maker Make(NormPlacement placement) {
  return [placement] {
    return std::make_unique<DepthProfile>(DepthProfileOptions(), Placed(placement, uint32_t{kLayers}));
  };
}
// Boundaries 0..16: ln s is c(step) l, or ln(1 + k l) where c is 0.
std::vector<model::Report> Streams(int count, const std::function<double(int)>& c, double k) {
  return Reports(count, [&](int step, model::Report* r) {
    testing::Lcg random(static_cast<uint64_t>(step));
    for (int l = 0; l <= kLayers; ++l) {
      const double per_layer = c(step);
      const double y = per_layer > 0 ? per_layer * l : std::log(1 + k * l);
      r->MutableArray(Signal::kHiddenMs).push_back(static_cast<float>(std::exp(y + 0.1 * random.Normal())));
    }
    if (step % 40 == 3) r->MutableArray(Signal::kHiddenMs)[5] = std::numeric_limits<float>::infinity();
    if (step % 40 == 4) r->MutableArray(Signal::kHiddenMs)[9] = model::kAbsent;
    if (step % 40 == 5) r->MutableArray(Signal::kHiddenMs)[9] = 1e20f;
  });
}

TEST(DepthProfile, ExponentialGrowthIsAnomalousInPeriAndReordered) {
  for (const NormPlacement placement : {NormPlacement::kPeri, NormPlacement::kReordered}) {
    const auto said = ExpectResumable(Make(placement), Streams(130, [](int) { return 0.6; }, 0));
    ASSERT_THAT(Brief(said), ElementsAre("info 31.. open"));
    EXPECT_EQ(said[0].step_detected, 95);
    EXPECT_THAT(said[0].message, HasSubstr("exponential"));
  }
}

TEST(DepthProfile, LinearGrowthIsWhatTheyDo) {
  for (const NormPlacement placement : {NormPlacement::kPeri, NormPlacement::kReordered, NormPlacement::kPre})
    EXPECT_THAT(ExpectResumable(Make(placement), Streams(400, [](int) { return 0.0; }, 2)), IsEmpty());
}

TEST(DepthProfile, PreNormMayGrowExponentiallyButNotEverFaster) {
  EXPECT_THAT(ExpectResumable(Make(NormPlacement::kPre), Streams(500, [](int) { return 0.6; }, 0)), IsEmpty());
  const auto said = ExpectResumable(
      Make(NormPlacement::kPre), Streams(600, [](int step) { return 0.4 + 0.0004 * step; }, 0));
  ASSERT_FALSE(said.empty());
  EXPECT_THAT(said[0].message, HasSubstr("steeper"));
}

TEST(DepthProfile, AClosedStreamThatGrowsIsAnomalous) {
  EXPECT_THAT(ExpectResumable(Make(NormPlacement::kPost), Streams(200, [](int) { return 0.02; }, 0)), IsEmpty());
  EXPECT_THAT(Brief(ExpectResumable(Make(NormPlacement::kPost), Streams(130, [](int) { return 0.2; }, 0))),
              ElementsAre("info 31.. open"));
  EXPECT_THAT(Brief(ExpectResumable(Make(NormPlacement::kDeepnorm), Streams(130, [](int) { return 0.5; }, 0))),
              ElementsAre("warning 31.. open"));
}

TEST(DepthProfile, SilentDuringTheWarmupAndWithFewLayers) {
  auto reports = Streams(130, [](int) { return 0.6; }, 0);
  for (model::Report& r : reports) r.SetScalar(Signal::kLearningRate, 1e-4 * static_cast<double>(r.step + 1));
  EXPECT_THAT(ExpectResumable(Make(NormPlacement::kPeri), reports), IsEmpty());
  Feed feed(Make(NormPlacement::kPeri)());
  for (int i = 0; i < 300; ++i) feed.Array(Signal::kHiddenMs, {1, 10, 100, 1000, 10000});
  EXPECT_THAT(feed.said, IsEmpty());
}

}  // namespace
}  // namespace gyrostat::detect
