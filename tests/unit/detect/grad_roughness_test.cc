#include "detect/grad_roughness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/lcg.h"
#include "unit/detect/feed.h"

namespace gyrostat::detect {
namespace {

using model::Signal;
using ::testing::IsEmpty;

Feed NewFeed(model::NormPlacement placement = model::NormPlacement::kPost) {
  model::ModelSpec spec;
  spec.layers = 2;
  spec.norm_placement = placement;
  return Feed(std::make_unique<GradRoughness>(GradRoughnessOptions(), spec));
}

// Independent ln(norm) of this deviation: their differences over sqrt 2 deviate by as much.
void Give(Feed* feed, testing::Lcg* random, double sigma, int steps) {
  for (int i = 0; i < steps; ++i)
    feed->Array(Signal::kLayerGradNorm, {static_cast<float>(0.3 * std::exp(0.2 * random->Normal())),
                                         static_cast<float>(0.1 * std::exp(sigma * random->Normal()))});
}

TEST(GradRoughness, ABlockThatGetsRoughIsAWarningThatNamesIt) {
  Feed feed = NewFeed();
  testing::Lcg random(1);
  Give(&feed, &random, 0.3, 200);
  EXPECT_THAT(feed.said, IsEmpty());
  Give(&feed, &random, 1.3, 60);
  ASSERT_FALSE(feed.said.empty());
  const model::Finding& said = feed.said.back();
  EXPECT_EQ(said.severity, model::Severity::kWarning);
  EXPECT_EQ(said.layer, 1u);
  EXPECT_EQ(said.recommend, model::InterventionKind::kDeepnormAlpha);
  Give(&feed, &random, 0.3, 60);
  EXPECT_EQ(feed.said.back().healed, true);
}

TEST(GradRoughness, IsTheDeviationOfDifferencesOverRootTwo) {
  Feed feed = NewFeed();
  for (int i = 0; i <= 40; ++i) {
    const double up = i % 2 == 0 ? 1 : std::exp(0.8 * std::sqrt(2.0));  // Differences over sqrt 2: +-0.8.
    feed.Array(Signal::kLayerGradNorm, {0.2f, static_cast<float>(up)});
  }
  ASSERT_EQ(feed.said.size(), 1u);
  EXPECT_NEAR(feed.said[0].value, 0.8, 1e-6);
  EXPECT_EQ(feed.said[0].step_detected, 40);  // The first with 40 differences.
  EXPECT_EQ(feed.said[0].severity, model::Severity::kInfo);
}

TEST(GradRoughness, OneBadBatchIsNothingAndThreeAreAtMostInformation) {
  for (const double bad : {1e6, 1e-6, 0.0, -1.0, kNan, kInf}) {
    for (const int batches : {1, 3}) {
      Feed feed = NewFeed();
      testing::Lcg random(2);
      Give(&feed, &random, 0.3, 100);
      for (int i = 0; i < batches; ++i) {
        feed.Array(Signal::kLayerGradNorm, {static_cast<float>(bad), static_cast<float>(bad)});
        Give(&feed, &random, 0.3, 5);
      }
      Give(&feed, &random, 0.3, 100);
      EXPECT_TRUE(batches == 3 || feed.said.empty()) << bad;
      for (const model::Finding& finding : feed.said) EXPECT_EQ(finding.severity, model::Severity::kInfo) << bad;
    }
  }
}

TEST(GradRoughness, ALevelThatTrendsOrJumpsIsNotRough) {
  Feed feed = NewFeed();
  testing::Lcg random(3);
  for (int i = 0; i < 400; ++i) {
    const double level = std::exp(0.03 * i + (i > 200 ? 3 : 0) + 0.3 * random.Normal());
    feed.Array(Signal::kLayerGradNorm, {0.3f, static_cast<float>(level)});
  }
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(GradRoughness, ARestartEndsItAndTheWindowFillsAnew) {
  Feed feed = NewFeed(model::NormPlacement::kPre);
  testing::Lcg random(4);
  Give(&feed, &random, 1.3, 60);
  EXPECT_EQ(feed.said.back().recommend, model::InterventionKind::kLrScale);
  feed.Break(Break::kNewAttempt);
  EXPECT_TRUE(feed.said.back().step_end.has_value());
  feed.said.clear();
  Give(&feed, &random, 1.3, 40);
  EXPECT_THAT(feed.said, IsEmpty());
  Give(&feed, &random, 1.3, 10);
  EXPECT_FALSE(feed.said.empty());
}

// A global norm whose independent logarithms deviate by `sigma`.
void GiveTotal(Feed* feed, testing::Lcg* random, double sigma, int steps) {
  for (int i = 0; i < steps; ++i) feed->Scalar(Signal::kGradNorm, 0.5 * std::exp(sigma * random->Normal()));
}

TEST(GradRoughness, ATotalNormThatGetsRoughIsAWarningAndHeals) {
  for (const double usual : {0.1, 0.15}) {
    Feed feed = NewFeed(model::NormPlacement::kPre);
    testing::Lcg random(3);
    GiveTotal(&feed, &random, usual, 2000);
    EXPECT_THAT(feed.said, IsEmpty());
    GiveTotal(&feed, &random, 0.5, 60);
    ASSERT_EQ(feed.said.size(), 1u);
    EXPECT_EQ(feed.said[0].severity, model::Severity::kWarning);
    EXPECT_FALSE(feed.said[0].layer.has_value());
    EXPECT_LT(feed.said[0].step_detected, 2045);
    GiveTotal(&feed, &random, usual, 80);
    EXPECT_EQ(feed.said.back().healed, true);
  }
}

TEST(GradRoughness, ATotalNormThatIsAlwaysRoughIsNone) {
  Feed feed = NewFeed(model::NormPlacement::kPre);
  testing::Lcg random(4);
  GiveTotal(&feed, &random, 0.35, 20000);
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(GradRoughness, ATotalNormIsRoughFromTheStart) {
  Feed feed = NewFeed(model::NormPlacement::kPre);
  testing::Lcg random(5);
  GiveTotal(&feed, &random, 1.5, 17);
  EXPECT_EQ(Brief(feed.said), std::vector<std::string>{"warning 16.. open"});
}

TEST(GradRoughness, TwoBadBatchesMakeNoTotalNormRough) {
  for (const double bad : {1e6, 1e-6, 0.0, -1.0, kNan, kInf}) {
    Feed feed = NewFeed(model::NormPlacement::kPre);
    testing::Lcg random(6);
    for (int i = 0; i < 10; ++i) {
      GiveTotal(&feed, &random, 0.12, 99);
      feed.Scalar(Signal::kGradNorm, bad);
    }
    EXPECT_THAT(feed.said, IsEmpty()) << bad;
    GiveTotal(&feed, &random, 0.5, 60);
    EXPECT_EQ(feed.said.size(), 1u) << bad;
  }
}

}  // namespace
}  // namespace gyrostat::detect
