#include "detect/update_ratio.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/lcg.h"
#include "unit/detect/feed.h"

namespace gyrostat::detect {
namespace {

using model::Signal;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Feed NewFeed() { return Feed(std::make_unique<UpdateRatio>(UpdateRatioOptions())); }

// Updates of 30 layers at this rate; the first `jumping` of them are `times` as large.
void Give(Feed* feed, testing::Lcg* random, double rate, size_t jumping = 0, double times = 1) {
  feed->Give([&](model::Report* r) {
    if (rate > 0) r->SetScalar(Signal::kLearningRate, rate);
    for (size_t i = 0; i < 30; ++i) {
      const double update = 0.3 * (rate > 0 ? rate : 1e-3) * std::exp(0.05 * random->Normal());
      r->MutableArray(Signal::kUpdateRms).push_back(static_cast<float>(update * (i < jumping ? times : 1)));
    }
  });
}

TEST(UpdateRatio, OneLayerForAMomentIsInformationAndATenthAtOnceAWarning) {
  for (const size_t jumping : {1u, 3u}) {
    Feed feed = NewFeed();
    testing::Lcg random(1);
    for (int i = 0; i < 100; ++i) Give(&feed, &random, 1e-3);
    Give(&feed, &random, 1e-3, jumping, 5);
    for (int i = 0; i < 5; ++i) Give(&feed, &random, 1e-3);
    const std::string severity = jumping == 1 ? "info" : "warning";
    EXPECT_THAT(Brief(feed.said), ElementsAre(severity + " 100.. open", severity + " 100..100 healed"));
    EXPECT_NEAR(feed.said[0].value / feed.said[0].expected, 5, 1);
  }
}

TEST(UpdateRatio, ThreeReportsInARowAreAWarning) {
  Feed feed = NewFeed();
  testing::Lcg random(2);
  for (int i = 0; i < 100; ++i) Give(&feed, &random, 1e-3);
  for (int i = 0; i < 3; ++i) Give(&feed, &random, 1e-3, 1, 5);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 100.. open", "warning 100.. open"));
  EXPECT_EQ(feed.said[1].layer, 0u);
}

TEST(UpdateRatio, JustBelowThreeTimesIsNone) {
  Feed feed = NewFeed();
  testing::Lcg random(3);
  for (int i = 0; i < 100; ++i) Give(&feed, &random, 1e-3);
  Give(&feed, &random, 1e-3, 30, 2.5);
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(UpdateRatio, TheScheduleIsNoJump) {
  Feed feed = NewFeed();
  testing::Lcg random(4);
  Give(&feed, &random, 1e-12);
  for (int i = 1; i < 200; ++i) Give(&feed, &random, 1e-5 * i);     // Warm-up.
  for (int i = 0; i < 200; ++i) Give(&feed, &random, 2e-4);         // A cut by 10, held.
  for (int i = 0; i < 200; ++i) Give(&feed, &random, 2e-3);
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(UpdateRatio, WithoutARateTheUpdateItselfIsJudged) {
  Feed feed = NewFeed();
  testing::Lcg random(5);
  for (int i = 0; i < 100; ++i) Give(&feed, &random, 0);
  Give(&feed, &random, 0, 1, 5);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 100.. open"));
}

TEST(UpdateRatio, ANewSizeIsTakenInTheEnd) {
  Feed feed = NewFeed();
  testing::Lcg random(6);
  for (int i = 0; i < 100; ++i) Give(&feed, &random, 1e-3);
  for (int i = 0; i < 400; ++i) Give(&feed, &random, 1e-3, 30, 5);
  EXPECT_EQ(feed.said.back().healed, false);
  feed.said.clear();
  Give(&feed, &random, 1e-3, 30, 25);
  EXPECT_FALSE(feed.said.empty());
}

}  // namespace
}  // namespace gyrostat::detect
