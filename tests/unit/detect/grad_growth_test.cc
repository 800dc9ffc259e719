#include "detect/grad_growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/lcg.h"
#include "unit/detect/feed.h"

namespace gyrostat::detect {
namespace {

using model::Signal;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

model::ModelSpec Spec(uint64_t warmup) {
  model::ModelSpec spec;
  spec.layers = 3;
  spec.warmup_steps = warmup;
  return spec;
}
Feed NewFeed(uint64_t warmup = 50) { return Feed(std::make_unique<GradGrowth>(GradGrowthOptions(), Spec(warmup))); }

void Give(Feed* feed, testing::Lcg* random, double total, std::vector<double> layers = {}) {
  feed->Give([&](model::Report* r) {
    r->SetScalar(Signal::kGradNorm, total * std::exp(0.1 * random->Normal()));
    for (const double v : layers)
      r->MutableArray(Signal::kLayerGradNorm).push_back(static_cast<float>(v * std::exp(0.1 * random->Normal())));
  });
}

TEST(GradGrowth, ADoublingIsInformationAndAQuadruplingAWarning) {
  for (const double times : {1.8, 2.4, 5.0}) {
    Feed feed = NewFeed();
    testing::Lcg random(1);
    for (int i = 0; i < 200; ++i) Give(&feed, &random, 0.5);
    for (int i = 0; i < 300; ++i) Give(&feed, &random, 0.5 * std::min(times, std::exp(0.01 * i)));
    if (times < 2) {
      EXPECT_THAT(feed.said, IsEmpty());
      continue;
    }
    ASSERT_FALSE(feed.said.empty()) << times;
    EXPECT_EQ(feed.said.back().severity, times > 4 ? model::Severity::kWarning : model::Severity::kInfo) << times;
    EXPECT_NEAR(feed.said[0].expected, 0.5, 0.05);
  }
}

TEST(GradGrowth, TheLayerThatMovedFirstIsNamed) {
  Feed feed = NewFeed();
  testing::Lcg random(2);
  for (int i = 0; i < 500; ++i) {
    const double up = std::exp(0.02 * std::clamp(i - 200, 0, 100));
    const double early = std::exp(0.02 * std::clamp(i - 160, 0, 100));
    Give(&feed, &random, 0.5 * up, {0.3 * up, 0.2 * early, 0.3 * up});
  }
  ASSERT_FALSE(feed.said.empty());
  EXPECT_EQ(feed.said[0].signal, Signal::kGradNorm);
  EXPECT_EQ(feed.said[0].layer, 1u);
  EXPECT_THAT(feed.said[0].message, HasSubstr("layer 1 moved first"));
}

TEST(GradGrowth, ALayerThatGrowsAloneIsInformation) {
  Feed feed = NewFeed();
  testing::Lcg random(3);
  for (int i = 0; i < 500; ++i)
    Give(&feed, &random, 0.5, {0.3, 0.3, 0.01 * std::exp(0.02 * std::clamp(i - 200, 0, 150))});
  ASSERT_THAT(feed.said, SizeIs(1));
  EXPECT_EQ(feed.said[0].severity, model::Severity::kInfo);
  EXPECT_EQ(feed.said[0].signal, Signal::kLayerGradNorm);
  EXPECT_EQ(feed.said[0].layer, 2u);
}

TEST(GradGrowth, NothingIsSaidOfWhatHappensDuringTheWarmUp) {
  for (const uint64_t warmup : {300ul, 50ul}) {
    Feed feed = NewFeed(warmup);
    testing::Lcg random(4);
    for (int i = 0; i < 280; ++i) Give(&feed, &random, 0.1 * std::exp(0.01 * i));
    for (int i = 0; i < 200; ++i) Give(&feed, &random, 0.1 * std::exp(2.8));
    EXPECT_EQ(feed.said.empty(), warmup == 300) << warmup;
  }
}

TEST(GradGrowth, ItEndsWhenTheNormIsBack) {
  Feed feed = NewFeed();
  testing::Lcg random(5);
  for (int i = 0; i < 200; ++i) Give(&feed, &random, 0.5);
  for (int i = 0; i < 100; ++i) Give(&feed, &random, 2.5);
  for (int i = 0; i < 100; ++i) Give(&feed, &random, 0.5);
  EXPECT_EQ(feed.said.back().healed, true);
}

TEST(GradGrowth, AHealthyNormSaysNothing) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    Feed feed = NewFeed();
    testing::Lcg random(seed);
    for (int i = 0; i < 4000; ++i)
      Give(&feed, &random, 0.4 * std::exp(0.0001 * i) * (i % 300 == 299 ? 20 : 1), {0.3, 0.2, 0.1});
    EXPECT_THAT(feed.said, IsEmpty()) << seed;
  }
}

}  // namespace
}  // namespace gyrostat::detect
