#include "detect/attn_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/detect/feed.h"

namespace gyrostat::detect {
namespace {

using model::Signal;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Feed NewFeed() {
  model::ModelSpec spec;
  spec.layers = 2;
  spec.heads = 4;
  return Feed(std::make_unique<AttnEntropy>(AttnEntropyOptions(), spec));
}

void Give(Feed* feed, std::vector<float> entropies, int reports) {
  for (int i = 0; i < reports; ++i) feed->Array(Signal::kAttnEntropy, entropies);
}

const std::vector<float> kHealthy = {2, 2, 2, 2, 1, 1, 1, 0.5f};

TEST(AttnEntropy, OneHeadIsInformationAndTwoAreAWarning) {
  Feed feed = NewFeed();
  Give(&feed, kHealthy, 50);
  Give(&feed, {2, 2, 2, 2, 1, 0.04f, 1, 0.5f}, 9);
  EXPECT_THAT(feed.said, IsEmpty());
  Give(&feed, {2, 2, 2, 2, 1, 0.04f, 1, 0.5f}, 1);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 59.. open"));
  EXPECT_EQ(feed.said[0].layer, 1u);
  EXPECT_EQ(feed.said[0].head, 1u);
  EXPECT_EQ(feed.said[0].expected, 1);
  Give(&feed, {0, 2, 2, 2, 1, 0.04f, 1, 0.5f}, 10);
  EXPECT_EQ(Brief(feed.said).back(), "warning 59.. open");
  EXPECT_EQ(feed.said.back().head, 1u);  // The first mover stays.
}

TEST(AttnEntropy, AboveTheLineIsNone) {
  Feed feed = NewFeed();
  Give(&feed, kHealthy, 50);
  Give(&feed, std::vector<float>(8, 0.051f), 100);
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(AttnEntropy, AHeadThatWasAlwaysLowHasNotCollapsed) {
  Feed feed = NewFeed();
  Give(&feed, std::vector<float>(8, 0.03f), 100);
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(AttnEntropy, ItIsOneFindingAlthoughHeadsComeAndGo) {
  Feed feed = NewFeed();
  Give(&feed, kHealthy, 20);
  for (int i = 0; i < 10; ++i) {
    Give(&feed, {0, 2, 2, 2, 1, 1, 1, 0.5f}, 12);
    Give(&feed, kHealthy, 12);
  }
  EXPECT_THAT(feed.said, SizeIs(1));
  Give(&feed, kHealthy, 52);
  EXPECT_THAT(feed.said, SizeIs(2));
  EXPECT_EQ(feed.said[1].healed, true);
}

TEST(AttnEntropy, PerLayerValuesNameALayerAndNoHead) {
  Feed feed = NewFeed();
  Give(&feed, {2, 2}, 20);
  Give(&feed, {2, 0.01f}, 10);
  ASSERT_THAT(feed.said, SizeIs(1));
  EXPECT_EQ(feed.said[0].layer, 1u);
  EXPECT_FALSE(feed.said[0].head.has_value());
}

TEST(AttnEntropy, WhatIsNoMeasurementNeitherCollapsesNorHeals) {
  Feed feed = NewFeed();
  Give(&feed, kHealthy, 20);
  for (int i = 0; i < 10; ++i) {
    Give(&feed, {0, 2, 2, 2, 1, 1, 1, 0.5f}, 1);
    for (const double bad : {-1.0, kNan, kInf, static_cast<double>(model::kAbsent)})
      Give(&feed, std::vector<float>(8, static_cast<float>(bad)), 1);
  }
  EXPECT_THAT(Brief(feed.said), SizeIs(1));
}

}  // namespace
}  // namespace gyrostat::detect
