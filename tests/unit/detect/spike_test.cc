#include "detect/spike.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/lcg.h"
#include "unit/detect/feed.h"

namespace gyrostat::detect {
namespace {

using model::Signal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Feed LossFeed() { return Feed(std::make_unique<Spike>(LossSpikeDefaults())); }
Feed GradFeed() { return Feed(std::make_unique<Spike>(GradSpikeDefaults())); }

// A calm stretch with a little noise, long enough to know the level and the scale.
void Calm(Feed* feed, Signal signal, double level, int steps = 100) {
  for (int i = 0; i < steps; ++i) feed->Scalar(signal, level * (1 + 0.01 * ((i * 7) % 5 - 2)));
}

TEST(LossSpike, ASingleBadBatchThatHealsIsInformation) {
  Feed feed = LossFeed();
  Calm(&feed, Signal::kLoss, 2.5);
  feed.Scalar(Signal::kLoss, 4.0);
  Calm(&feed, Signal::kLoss, 2.5, 10);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 100.. open", "info 100..100 healed"));
  EXPECT_EQ(feed.said[0].value, 4.0);
  EXPECT_NEAR(feed.said[0].expected, 2.5, 0.05);
  EXPECT_THAT(feed.said[0].message, HasSubstr("loss 4 at step 100, where 2.5"));
  EXPECT_EQ(feed.said[0].key, feed.said[1].key);
}

TEST(LossSpike, TwiceTheMedianIsAWarningThoughItHeals) {
  Feed feed = LossFeed();
  Calm(&feed, Signal::kLoss, 2.5);
  feed.Scalar(Signal::kLoss, 8.3);
  Calm(&feed, Signal::kLoss, 2.5, 10);
  EXPECT_THAT(Brief(feed.said), ElementsAre("warning 100.. open", "warning 100..100 healed"));
}

TEST(LossSpike, JustBelowTwiceTheMedianIsNot) {
  Feed feed = LossFeed();
  Calm(&feed, Signal::kLoss, 2.5);
  feed.Scalar(Signal::kLoss, 1.98 * 2.5);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 100.. open"));
}

TEST(LossSpike, ThreeRecordsAreAWarning) {
  for (const int records : {2, 3}) {
    Feed feed = LossFeed();
    Calm(&feed, Signal::kLoss, 2.5);
    feed.Scalars(Signal::kLoss, 4.0, records);
    Calm(&feed, Signal::kLoss, 2.5, 10);
    if (records == 2)
      EXPECT_THAT(Brief(feed.said), ElementsAre("info 100.. open", "info 100..101 healed"));
    else
      EXPECT_THAT(Brief(feed.said),
                  ElementsAre("info 100.. open", "warning 100.. open", "warning 100..102 healed"));
  }
}

TEST(LossSpike, NotHealedIn20IsAWarningAndIn200Critical) {
  Feed feed = LossFeed();
  Calm(&feed, Signal::kLoss, 2.5);
  feed.Scalar(Signal::kLoss, 3.0);
  feed.Scalars(Signal::kLoss, 2.72, 18);  // Above what is back, below what begins a spike.
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 100.. open"));
  EXPECT_THAT(Brief(feed.Scalar(Signal::kLoss, 2.72)), ElementsAre("warning 100.. open"));
  feed.Scalars(Signal::kLoss, 2.72, 179);
  EXPECT_EQ(feed.said.size(), 2u);
  EXPECT_THAT(Brief(feed.Scalar(Signal::kLoss, 2.72)), ElementsAre("critical 100.. open"));
}

TEST(LossSpike, ANewLevelIsTakenInTheEndAndWatchedAgain) {
  Feed feed = LossFeed();
  Calm(&feed, Signal::kLoss, 2.5);
  Calm(&feed, Signal::kLoss, 3.5, 600);
  ASSERT_EQ(Brief(feed.said).back(), "critical 100..499 not healed");
  feed.said.clear();
  feed.Scalar(Signal::kLoss, 9);
  EXPECT_THAT(Brief(feed.said), ElementsAre("warning 700.. open"));
}

// The scale first, the ratio only after it: the losses of micro-batches of a few sequences vary tenfold.
TEST(LossSpike, TheNoiseOfSmallBatchesIsNoSpike) {
  int informed = 0, warned = 0;
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    Feed feed = LossFeed();
    testing::Lcg random(seed);
    for (int i = 0; i < 1000; ++i) feed.Scalar(Signal::kLoss, 2.5 * std::exp(0.5 * random.Normal()));
    for (const model::Finding& f : feed.said) {
      EXPECT_LT(f.step_begin, 100) << seed;  // Among the first reports, before the scale is known.
      informed += f.step_end.has_value();
      warned += f.step_end && f.severity != model::Severity::kInfo;
    }
    feed.said.clear();
    feed.Scalar(Signal::kLoss, 2.5e3);
    EXPECT_THAT(Brief(feed.said), ElementsAre("warning 1000.. open")) << seed;
  }
  EXPECT_LE(warned, 5);  // Of 50 such beginnings, in 50,000 reports.
  EXPECT_LE(informed, 60);  // One or so each, which is free.
}

TEST(LossSpike, AGrossJumpAmongTheFirstReportsIsAWarningWhereTheyHardlyVaried) {
  Feed feed = LossFeed();
  feed.Scalar(Signal::kLoss, 12.4424);
  feed.Scalar(Signal::kLoss, 12.4450);
  feed.Scalar(Signal::kLoss, 44.24);
  EXPECT_THAT(Brief(feed.said), ElementsAre("warning 2.. open"));
  EXPECT_THAT(feed.said[0].message, HasSubstr("among the first reports"));
}

TEST(LossSpike, AGrossJumpAmongFirstReportsThatVaryIsInformationUntilTheFourthInARow) {
  const std::vector<double> first = {5, 3, 4, 2.5, 4.5, 3};
  Feed feed = LossFeed();
  for (const double loss : first) feed.Scalar(Signal::kLoss, loss);
  feed.Scalar(Signal::kLoss, 6.9);  // Not twice the median of 3.5.
  EXPECT_THAT(feed.said, IsEmpty());
  feed = LossFeed();
  for (const double loss : first) feed.Scalar(Signal::kLoss, loss);
  feed.Scalars(Signal::kLoss, 11, 3);
  feed.Scalar(Signal::kLoss, 6);  // Above where it is back, and not above where it began.
  feed.Scalar(Signal::kLoss, 11);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 6.. open"));
  feed.Scalars(Signal::kLoss, 11, 3);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 6.. open", "warning 6.. open"));
}

TEST(LossSpike, WhatIsNotAboveAllFirstReportsIsNone) {
  Feed feed = LossFeed();
  feed.Scalar(Signal::kLoss, 11);  // A descent: the median is soon a third of where it began.
  for (int i = 0; i < 20; ++i) feed.Scalar(Signal::kLoss, 3 + 0.1 * (i % 3));
  feed.Scalar(Signal::kLoss, 6.5);
  EXPECT_THAT(Brief(feed.said), ElementsAre("warning 21.. open"));  // The 11 has left the window.
  feed = LossFeed();
  feed.Scalar(Signal::kLoss, 11);
  feed.Scalars(Signal::kLoss, 3, 10);
  feed.Scalar(Signal::kLoss, 10);
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(LossSpike, SeesASpikeOnASteepDescentThatHidesItFromTheWindow) {
  Feed feed = LossFeed();
  for (int i = 0; i < 120; ++i) feed.Scalar(Signal::kLoss, 11 - 0.06 * i);
  EXPECT_THAT(feed.said, IsEmpty());
  feed.Scalar(Signal::kLoss, 5.5);  // Expected about 3.8; half of the window was higher than this.
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 120.. open"));
}

TEST(LossSpike, TheEndOfADescentIsNotASpike) {
  Feed feed = LossFeed();
  testing::Lcg random(4);
  for (int i = 0; i < 300; ++i) feed.Scalar(Signal::kLoss, std::max(2.0, 4 - 0.01 * i) + 0.005 * random.Normal());
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(LossSpike, ADropIsNotASpikeAndDoesNotBlind) {
  Feed feed = LossFeed();
  Calm(&feed, Signal::kLoss, 4);
  Calm(&feed, Signal::kLoss, 2);
  EXPECT_THAT(feed.said, IsEmpty());
  feed.Scalar(Signal::kLoss, 3);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 200.. open"));
}

TEST(LossSpike, ALossThatCrossesZeroIsJudgedAsItIs) {
  Feed feed = LossFeed();
  testing::Lcg random(3);
  for (int i = 0; i < 2000; ++i) feed.Scalar(Signal::kLoss, 0.3 * random.Normal());
  EXPECT_THAT(feed.said, IsEmpty());
  feed.Scalar(Signal::kLoss, 4);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 2000.. open"));
}

TEST(LossSpike, ALossBelowZeroIsJudgedToo) {
  Feed feed = LossFeed();
  Calm(&feed, Signal::kLoss, -3);
  feed.Scalar(Signal::kLoss, 1);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 100.. open"));
}

// anchors: one bad value blinds the usual rule for a whole window. Whatever came before, the spikes after it are seen.
TEST(LossSpike, NoSingleValueBlindsIt) {
  for (const double bad : {6.0, 1e6, 1e300, -1e300, kNan, kInf, -kInf, static_cast<double>(model::kAbsent)}) {
    Feed feed = LossFeed();
    testing::Lcg random(1);
    std::vector<model::Step> begins;
    for (int step = 0; step < 600; ++step) {
      double loss = 2 + 0.02 * random.Normal();
      if (step == 200) loss = bad;
      if (step == 210 || step == 300 || step == 320 || step == 400) loss = 6;
      for (const model::Finding& f : feed.Scalar(Signal::kLoss, loss))
        if (!f.step_end && f.step_begin > 200) begins.push_back(f.step_begin);
    }
    EXPECT_THAT(begins, ElementsAre(210, 300, 320, 400)) << bad;
  }
}

TEST(LossSpike, NanNeitherHealsNorEndsAnOpenSpike) {
  Feed feed = LossFeed();
  Calm(&feed, Signal::kLoss, 2.5);
  feed.Scalar(Signal::kLoss, 3.5);
  feed.Scalars(Signal::kLoss, kNan, 18);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 100.. open"));
  feed.Scalar(Signal::kLoss, kNan);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 100.. open", "warning 100.. open"));
}

TEST(LossSpike, SeesAGrossSpikeRightAfterARestart) {
  Feed feed = LossFeed();
  Calm(&feed, Signal::kLoss, 2.5);
  feed.Break(Break::kNewAttempt);
  feed.Scalars(Signal::kLoss, 2.5, 3);
  feed.Scalar(Signal::kLoss, 4.9);  // Not twice: nothing relative is said so early.
  feed.Scalar(Signal::kLoss, 5.2);
  EXPECT_THAT(Brief(feed.said), ElementsAre("warning 104.. open"));
  EXPECT_THAT(feed.said[0].message, HasSubstr("judged by the level before the last restart"));
}

TEST(LossSpike, ARestartEndsWhatIsOpenAndSaysSo) {
  Feed feed = LossFeed();
  Calm(&feed, Signal::kLoss, 2.5);
  feed.Scalar(Signal::kLoss, 9);
  feed.Break(Break::kNewAttempt);
  EXPECT_THAT(Brief(feed.said), ElementsAre("warning 100.. open", "warning 100..100 ended"));
  EXPECT_EQ(feed.said[1].message, "A restart at step 101 ended it.");
}

TEST(LossSpike, AnInterventionLeavesAnOpenSpikeToBeJudgedByTheOldLevel) {
  Feed feed = LossFeed();
  Calm(&feed, Signal::kLoss, 2.5);
  feed.Scalars(Signal::kLoss, 4, 5);
  feed.Break(Break::kIntervention);
  Calm(&feed, Signal::kLoss, 2.5, 3);
  EXPECT_EQ(Brief(feed.said).back(), "warning 100..104 healed");
}

TEST(GradSpike, OnlyEightTimesTheMedianIsAWarningWhenItHeals) {
  for (const double times : {7.8, 8.2}) {
    Feed feed = GradFeed();
    Calm(&feed, Signal::kGradNorm, 0.5);
    feed.Scalar(Signal::kGradNorm, 0.5 * times);
    Calm(&feed, Signal::kGradNorm, 0.5, 5);
    EXPECT_EQ(Brief(feed.said).front(), times < 8 ? "info 100.. open" : "warning 100.. open");
    EXPECT_EQ(Brief(feed.said).back(), times < 8 ? "info 100..100 healed" : "warning 100..100 healed");
  }
}

// LABELS.md, A02: 71.9 at step 22, after 26 and 29, where 2 was usual.
TEST(GradSpike, SeesAGrossSpikeAmongWildFirstReports) {
  Feed feed = GradFeed();
  for (const double norm : {3.6, 7.63, 3.18, 26.4, 3.17, 7.06, 29.0, 7.54, 1.38, 2.59, 5.74, 2.04, 1.72, 1.93, 1.94,
                            0.74, 2.14, 3.2, 0.58, 0.64, 0.6})
    feed.Scalar(Signal::kGradNorm, norm);
  EXPECT_THAT(feed.said, IsEmpty());
  feed.Scalar(Signal::kGradNorm, 71.9);
  Calm(&feed, Signal::kGradNorm, 0.5, 5);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 21.. open", "info 21..21 healed"));
}

TEST(GradSpike, ANormOfATrillionNeedsNoPast) {
  Feed feed = GradFeed();
  feed.Scalar(Signal::kGradNorm, 9e11);
  EXPECT_THAT(feed.said, IsEmpty());
  feed = GradFeed();
  feed.Scalar(Signal::kGradNorm, 1.4e17);
  feed.Scalars(Signal::kGradNorm, 1e4, 3);
  EXPECT_THAT(Brief(feed.said), ElementsAre("warning 0.. open", "warning 0..0 healed"));
}

TEST(GradSpike, ThreeHighOnesInARowAreAWarningThoughNoneStandsOut) {
  for (const int high : {2, 3}) {
    Feed feed = GradFeed();
    testing::Lcg random(2);
    for (int i = 0; i < 300; ++i) feed.Scalar(Signal::kGradNorm, std::exp(0.1 * random.Normal()));
    feed.Scalars(Signal::kGradNorm, std::exp(0.6), high);  // 6 deviations; 7 begin a spike.
    feed.Scalars(Signal::kGradNorm, 1, 4);
    if (high == 2)
      EXPECT_THAT(feed.said, IsEmpty());
    else
      EXPECT_THAT(Brief(feed.said), ElementsAre("warning 300.. open", "warning 300..302 healed"));
  }
}

TEST(GradSpike, MinusOneAndZeroAreNotMeasured) {
  Feed feed = GradFeed();
  for (int i = 0; i < 300; ++i) {
    feed.Scalar(Signal::kGradNorm, 0.5 * (1 + 0.01 * (i % 5)));
    feed.Scalar(Signal::kGradNorm, i % 2 == 0 ? -1 : 0);
  }
  feed.Scalar(Signal::kGradNorm, 3);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 600.. open"));
}

TEST(GradSpike, ItsSkewedTailIsNoSpike) {
  Feed feed = GradFeed();
  testing::Lcg random(9);
  for (int i = 0; i < 20000; ++i) feed.Scalar(Signal::kGradNorm, std::exp(0.3 * random.Normal()));
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(GradSpike, SeesThroughRecurringBursts) {
  Feed feed = GradFeed();
  testing::Lcg random(11);
  int bursts = 0, seen = 0;
  for (int i = 0; i < 10000; ++i) {
    const bool burst = i >= 1000 && i % 250 < 10;
    const auto fresh = feed.Scalar(Signal::kGradNorm, std::exp(0.2 * random.Normal()) * (burst ? 8 : 1));
    if (burst && i % 250 == 0) ++bursts;
    for (const auto& f : fresh)
      if (!f.step_end && f.severity == model::Severity::kWarning) ++seen;
  }
  EXPECT_GE(seen, 0.95 * bursts);
  EXPECT_LE(seen, bursts);
}

}  // namespace
}  // namespace gyrostat::detect
