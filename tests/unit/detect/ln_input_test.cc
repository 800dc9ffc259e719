#include "detect/ln_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/detect/feed.h"
#include "unit/detect/resume.h"

namespace gyrostat::detect {
namespace {

using model::NormPlacement;
using model::Signal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Maker Make(model::ModelSpec spec, uint64_t warmup) {
  spec.warmup_steps = warmup;
  return [spec] { return std::make_unique<LnInput>(LnInputOptions(), spec); };
}
// Layer 1 of 3 is the largest.
void Give(Feed* feed, double ms, int times = 1) {
  for (int i = 0; i < times; ++i) feed->Array(Signal::kLnInputMs, {1, static_cast<float>(ms), 1});
}

TEST(LnInput, GrowthWithinTenReportsOfTheWarmupRecommendsToStretchIt) {
  Feed feed(Make(Placed(NormPlacement::kPost, 3), 100)());
  for (int i = 0; i < 20; ++i) Give(&feed, 1.5 * std::exp(0.08 * i));  // RMS: 1.49 times in 10.
  ASSERT_THAT(Brief(feed.said), ElementsAre("info 12.. open"));
  EXPECT_EQ(feed.said[0].recommend, model::InterventionKind::kWarmupExtension);
  EXPECT_EQ(feed.said[0].layer, 1u);
}

TEST(LnInput, SlowerGrowthOrGrowthAfterTheWarmupIsNone) {
  Feed slow(Make(Placed(NormPlacement::kPost, 3), 100)()), late(Make(Placed(NormPlacement::kPost, 3), 0)());
  for (int i = 0; i < 50; ++i) Give(&slow, 1.5 * std::exp(0.06 * i));  // RMS: 1.35 times in 10.
  for (int i = 0; i < 20; ++i) Give(&late, 1.5 * std::exp(0.08 * i));
  EXPECT_THAT(slow.said, IsEmpty());
  EXPECT_THAT(late.said, IsEmpty());
}

TEST(LnInput, LevelIsInUnitsOfThePlacementsOwnLaw) {
  Feed post(Make(Placed(NormPlacement::kPost, 3), 0)());
  Give(&post, 1.5 * 63, 20);
  EXPECT_THAT(post.said, IsEmpty());
  Give(&post, 1.5 * 65, 8);
  ASSERT_THAT(Brief(post.said), ElementsAre("warning 20.. open"));
  EXPECT_FALSE(post.said[0].recommend);
  // DeepNorm of 8 layers: alpha = 2, and the sum starts at alpha^2.
  Feed deep(Make(Placed(NormPlacement::kDeepnorm, 8), 0)());
  Give(&deep, 4 * 63, 20);
  EXPECT_THAT(deep.said, IsEmpty());
  Give(&deep, 4 * 65, 8);
  EXPECT_EQ(deep.said.size(), 1u);
}

TEST(LnInput, WildAndMissingReportsNeitherFireNorHide) {
  Feed feed(Make(Placed(NormPlacement::kPost, 3), 1000)());
  Give(&feed, 1.5, 20);
  Give(&feed, 1e6);
  Give(&feed, kNan);
  Give(&feed, 1.5, 20);
  feed.Array(Signal::kLnInputMs, {model::kAbsent, model::kAbsent, model::kAbsent});
  EXPECT_THAT(feed.said, IsEmpty());
  for (int i = 0; i < 20; ++i) Give(&feed, 1.5 * std::exp(0.08 * i));
  EXPECT_EQ(feed.said.size(), 1u);
}

TEST(LnInput, OtherPlacementsHaveNoSuchNorm) {
  Feed feed(Make(Placed(NormPlacement::kPre, 3), 100)());
  for (int i = 0; i < 50; ++i) Give(&feed, 1.5 * std::exp(0.2 * i));
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(LnInput, ResumesBitForBit) {
  const auto said = ExpectResumable(
      Make(Placed(NormPlacement::kPost, 2), 100), Reports(200, [](int step, model::Report* r) {
        const double ms = step < 100 ? 1.5 * std::exp(0.09 * std::min(step, 60)) : 2;
        r->MutableArray(Signal::kLnInputMs) = {static_cast<float>(step % 30 == 20 ? kNan : ms), 1};
      }));
  EXPECT_THAT(Brief(said), ElementsAre(HasSubstr("info"), HasSubstr("warning"), HasSubstr("healed"),
                                       HasSubstr("healed")));
}

}  // namespace
}  // namespace gyrostat::detect
