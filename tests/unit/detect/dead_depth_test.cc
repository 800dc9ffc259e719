#include "detect/dead_depth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/detect/feed.h"
#include "unit/detect/resume.h"

namespace gyrostat::detect {
namespace {

using model::Signal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Maker Make() {
  return [] {
    return std::make_unique<DeadDepth>(DeadDepthOptions(), Placed(model::NormPlacement::kPre, 4));
  };
}
constexpr float kDeadMs = 100.f / (512 * 512);  // At the limit of a stream with mean square 100.

void Give(Feed* feed, std::vector<float> branches, int times, bool boundaries = false) {
  for (int i = 0; i < times; ++i)
    feed->Give([&](model::Report* r) {
      r->MutableArray(Signal::kHiddenMs).assign(boundaries ? 5 : 4, 100.f);
      r->MutableArray(Signal::kMlpOutMs) = branches;
      r->MutableArray(Signal::kAttnOutMs).assign(4, 0.f);
    });
}

TEST(DeadDepth, NamesTheLayerAfterSixtyFourReports) {
  for (const bool boundaries : {false, true}) {
    Feed feed(Make()());
    Give(&feed, {1, 1, kDeadMs * 0.9f, 1}, 63, boundaries);
    EXPECT_THAT(feed.said, IsEmpty());
    Give(&feed, {1, 1, kDeadMs * 0.9f, 1}, 1, boundaries);
    ASSERT_THAT(Brief(feed.said), ElementsAre("info 63.. open"));
    EXPECT_EQ(feed.said[0].layer, 2u);
  }
}

TEST(DeadDepth, AtTheLimitALayerStillWrites) {
  Feed feed(Make()());
  Give(&feed, {1, 1, kDeadMs * 1.1f, 1}, 500);
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(DeadDepth, AQuarterAndAtLeastTwoLayersAreAWarningThatCanHeal) {
  Feed feed(Make()());
  Give(&feed, {1, 1, 0, 0}, 64);
  EXPECT_THAT(Brief(feed.said), ElementsAre("warning 63.. open"));
  Give(&feed, {1, 1, 1, 1}, 16);
  EXPECT_EQ(feed.said.back().healed, true);
}

TEST(DeadDepth, OneLivelyReportBeginsTheCountAnewAMissingOneDoesNot) {
  Feed lively(Make()()), missing(Make()());
  Give(&lively, {1, 1, 0, 1}, 60);
  Give(&lively, {1, 1, 1, 1}, 1);
  Give(&lively, {1, 1, 0, 1}, 60);
  EXPECT_THAT(lively.said, IsEmpty());
  Give(&missing, {1, 1, 0, 1}, 60);
  missing.Array(Signal::kMlpOutMs, {1, 1, 1, 1});  // Without the stream nothing can be said.
  missing.Give([](model::Report* r) {
    r->MutableArray(Signal::kHiddenMs) = {100, 100, std::numeric_limits<float>::quiet_NaN(), model::kAbsent};
    r->MutableArray(Signal::kMlpOutMs) = {1, 1, 1, 1};
  });
  Give(&missing, {1, 1, 0, 1}, 4);
  EXPECT_EQ(missing.said.size(), 1u);
}

TEST(DeadDepth, ResumesBitForBit) {
  const auto said = ExpectResumable(Make(), Reports(200, [](int step, model::Report* r) {
    r->MutableArray(Signal::kHiddenMs).assign(4, 100.f);
    r->MutableArray(Signal::kAttnOutMs) = {1, 1, step < 150 ? 0.f : 1.f, step > 20 && step < 150 ? 0.f : 1.f};
  }));
  EXPECT_THAT(Brief(said), ElementsAre(HasSubstr("info"), HasSubstr("warning"), HasSubstr("healed")));
}

}  // namespace
}  // namespace gyrostat::detect
