#include "detect/nonfinite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/detect/feed.h"

namespace gyrostat::detect {
namespace {

using model::Signal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kNanF = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfF = std::numeric_limits<float>::infinity();

model::ModelSpec TwoByTwo() {
  model::ModelSpec spec;
  spec.layers = spec.heads = 2;
  return spec;
}
Feed NewFeed() { return Feed(std::make_unique<NonfiniteDetector>(NonfiniteOptions(), TwoByTwo())); }

TEST(Nonfinite, OneNanLossIsAWarningFromTheFirstStepAndHeals) {
  Feed feed = NewFeed();
  feed.Scalar(Signal::kLoss, kNan);
  feed.Scalars(Signal::kLoss, 2.5, 3);
  EXPECT_THAT(Brief(feed.said), ElementsAre("warning 0.. open", "warning 0..0 healed"));
  EXPECT_EQ(feed.said[0].signal, Signal::kLoss);
}

TEST(Nonfinite, ThreeInARowAreCritical) {
  Feed feed = NewFeed();
  feed.Scalars(Signal::kLoss, 2.5, 5);
  feed.Scalars(Signal::kLoss, kNan, 50);
  EXPECT_THAT(Brief(feed.said), ElementsAre("warning 5.. open", "critical 5.. open"));
  EXPECT_THAT(feed.said[0].message, HasSubstr("Last finite before: loss 2.5"));
}

TEST(Nonfinite, TwoInARowWithFiniteOnesBetweenAreNotLasting) {
  Feed feed = NewFeed();
  for (int i = 0; i < 20; ++i) feed.Scalar(Signal::kLoss, i % 3 == 2 ? 2.5 : kNan);
  EXPECT_THAT(Brief(feed.said), ElementsAre("warning 0.. open"));
}

TEST(Nonfinite, NamesTheSignalNearestToTheCause) {
  Feed feed = NewFeed();
  const auto fresh = feed.Give([](model::Report* r) {
    r->SetScalar(Signal::kLoss, kNan);
    r->SetScalar(Signal::kGradNorm, kNan);
    r->MutableArray(Signal::kHiddenAbsmax) = {1, 2, kInfF};
    r->MutableArray(Signal::kAttnLogitMax) = {1, 2, 3, kNanF};
  });
  ASSERT_EQ(fresh.size(), 1u);
  EXPECT_EQ(fresh[0].signal, Signal::kHiddenAbsmax);
  EXPECT_EQ(fresh[0].layer, 1u);  // Boundary 2 is the output of block 1.
  EXPECT_EQ(fresh[0].message, "hidden_absmax is inf in layer 1 at step 0, and 3 more signals with it.");
}

TEST(Nonfinite, NamesLayerAndHead) {
  Feed feed = NewFeed();
  const auto fresh = feed.Array(Signal::kAttnLogitMax, {1, 2, kNanF, 4});
  ASSERT_EQ(fresh.size(), 1u);
  EXPECT_EQ(fresh[0].layer, 1u);
  EXPECT_EQ(fresh[0].head, 0u);
}

TEST(Nonfinite, CountsOfNonFiniteValuesAreThemselvesEvidence) {
  Feed feed = NewFeed();
  feed.Array(Signal::kNonfinite, {0, 0});
  feed.Array(Signal::kNonfinite, {model::kAbsent, 0});
  EXPECT_THAT(feed.said, IsEmpty());
  feed.Array(Signal::kNonfinite, {0, 12});
  ASSERT_EQ(feed.said.size(), 1u);
  EXPECT_EQ(feed.said[0].layer, 1u);
  EXPECT_EQ(feed.said[0].value, 12);
}

TEST(Nonfinite, MinusInfinityAsAMaximumOfLogitsIsNoKeyAtAll) {
  Feed feed = NewFeed();
  feed.Array(Signal::kAttnLogitMax, {1, -kInfF, 3, 4});
  EXPECT_THAT(feed.said, IsEmpty());
  feed.Array(Signal::kHiddenMs, {1, -kInfF});
  EXPECT_EQ(feed.said.size(), 1u);
}

TEST(Nonfinite, AbsentIsNotBadAndHealsNothing) {
  Feed feed = NewFeed();
  feed.Scalar(Signal::kLoss, kNan);
  for (int i = 0; i < 50; ++i) feed.Give([](model::Report*) {});
  feed.Scalars(Signal::kGradNorm, 1, 50);  // Another signal's health says nothing of this one.
  EXPECT_THAT(Brief(feed.said), ElementsAre("warning 0.. open"));
}

TEST(Nonfinite, WhatFollowsSoonJoinsWhatFollowsLaterIsNew) {
  Feed feed = NewFeed();
  feed.Scalar(Signal::kGradNorm, kInf);
  feed.Give([](model::Report* r) {
    r->SetScalar(Signal::kGradNorm, kNan);
    r->SetScalar(Signal::kLoss, kNan);
  });
  EXPECT_THAT(Brief(feed.said), ElementsAre("warning 0.. open"));
  for (int i = 0; i < 20; ++i)
    feed.Give([](model::Report* r) {
      r->SetScalar(Signal::kGradNorm, kNan);
      r->SetScalar(Signal::kLoss, kNan);
    });
  EXPECT_THAT(Brief(feed.said), ElementsAre("warning 0.. open", "critical 0.. open"));
  EXPECT_EQ(feed.Scalar(Signal::kLogZ, kNan).at(0).signal, Signal::kLogZ);
}

TEST(Nonfinite, AGradientOverflowUnderALossScaleIsTheScalerAtWork) {
  const auto give = [](Feed* feed, double scale, int times) {
    for (int i = 0; i < times; ++i)
      feed->Give([scale](model::Report* r) {
        r->SetScalar(Signal::kGradNorm, kInf);
        r->SetScalar(Signal::kLossScale, scale);
      });
  };
  Feed feed = NewFeed();
  give(&feed, 65536, 19);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 0.. open"));
  give(&feed, 65536, 1);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 0.. open", "critical 0.. open"));
  Feed at_minimum = NewFeed();
  give(&at_minimum, 1, 3);
  EXPECT_THAT(Brief(at_minimum.said), ElementsAre("warning 0.. open", "critical 0.. open"));
}

TEST(Nonfinite, ALossThatJoinsAScaledOverflowMakesItAWarning) {
  Feed feed = NewFeed();
  const auto give = [&feed](double loss) {
    feed.Give([loss](model::Report* r) {
      r->SetScalar(Signal::kGradNorm, kInf);
      r->SetScalar(Signal::kLossScale, 1024);
      r->SetScalar(Signal::kLoss, loss);
    });
  };
  give(2);
  give(kNan);
  give(kNan);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 0.. open", "warning 0.. open", "critical 0.. open"));
}

TEST(Nonfinite, ARestartEndsWhatIsOpen) {
  Feed feed = NewFeed();
  feed.Scalars(Signal::kLoss, kNan, 3);
  feed.Break(Break::kIntervention);
  EXPECT_EQ(feed.said.size(), 2u);
  feed.Break(Break::kNewEpoch);
  EXPECT_EQ(Brief(feed.said).back(), "critical 0..2 ended");
  feed.Scalar(Signal::kLoss, kNan);
  EXPECT_EQ(Brief(feed.said).back(), "warning 3.. open");
}

}  // namespace
}  // namespace gyrostat::detect
