#include "detect/divergence.h"

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

Feed NewFeed() { return Feed(std::make_unique<Divergence>(DivergenceOptions())); }

// A run whose loss is `level(step)` with noise of 0.02.
template <class Level>
void Train(Feed* feed, testing::Lcg* random, int steps, Level level) {
  for (int i = 0; i < steps; ++i) feed->Scalar(Signal::kLoss, level(i) + 0.02 * random->Normal());
}

TEST(Divergence, ASlowClimbIsAWarningAndThenCritical) {
  Feed feed = NewFeed();
  testing::Lcg random(1);
  Train(&feed, &random, 300, [](int i) { return 3 - 0.002 * i; });
  EXPECT_THAT(feed.said, IsEmpty());
  Train(&feed, &random, 300, [](int i) { return 2.4 + 0.001 * i; });
  ASSERT_EQ(feed.said.size(), 2u);
  EXPECT_EQ(feed.said[0].severity, model::Severity::kWarning);
  EXPECT_EQ(feed.said[1].severity, model::Severity::kCritical);
  EXPECT_EQ(feed.said[0].key, feed.said[1].key);
  EXPECT_LT(feed.said[0].step_detected, 400);  // The climb is 0.1 by then: 4 % of the loss.
  EXPECT_GE(feed.said[0].step_begin, 290);
  EXPECT_EQ(feed.said[1].recommend, model::InterventionKind::kRollback);
  EXPECT_THAT(feed.said[1].message, HasSubstr("diverges"));
}

TEST(Divergence, ARunawayWithinTensOfRecordsIsCriticalBeforeTheLongWindowIsFull) {
  Feed feed = NewFeed();
  testing::Lcg random(2);
  Train(&feed, &random, 24, [](int i) { return 5 - 0.1 * i; });
  Train(&feed, &random, 30, [](int i) { return 2.6 + 0.25 * i; });
  ASSERT_FALSE(feed.said.empty());
  EXPECT_EQ(feed.said.back().severity, model::Severity::kCritical);
  EXPECT_LT(feed.said[0].step_detected, 24 + 20);
}

TEST(Divergence, OneJumpThatStaysIsAShiftAndNeverCritical) {
  Feed feed = NewFeed();
  testing::Lcg random(3);
  Train(&feed, &random, 300, [](int) { return 2.3; });
  Train(&feed, &random, 150, [](int) { return 2.8; });
  ASSERT_THAT(feed.said, ::testing::SizeIs(1));
  EXPECT_EQ(feed.said[0].severity, model::Severity::kInfo);
  EXPECT_NEAR(static_cast<double>(feed.said[0].step_begin), 300, 4);
  Train(&feed, &random, 400, [](int) { return 2.8; });
  ASSERT_THAT(feed.said, ::testing::SizeIs(3));
  EXPECT_EQ(feed.said[1].severity, model::Severity::kWarning);
  EXPECT_EQ(feed.said[2].healed, false);
  EXPECT_TRUE(feed.said[2].step_end.has_value());
}

TEST(Divergence, AShiftThatComesBackWithin64RecordsIsASpikesBusiness) {
  Feed feed = NewFeed();
  testing::Lcg random(7);
  Train(&feed, &random, 300, [](int) { return 2.3; });
  Train(&feed, &random, 50, [](int) { return 2.8; });
  Train(&feed, &random, 100, [](int) { return 2.3; });
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(Divergence, AShiftThatGoesOnClimbingIsCriticalAfterAll) {
  Feed feed = NewFeed();
  testing::Lcg random(4);
  Train(&feed, &random, 300, [](int) { return 2.3; });
  Train(&feed, &random, 100, [](int i) { return 2.8 + 0.01 * i; });
  EXPECT_EQ(feed.said.back().severity, model::Severity::kCritical);
}

TEST(Divergence, AClimbThatTurnsBackIsHealed) {
  Feed feed = NewFeed();
  testing::Lcg random(5);
  Train(&feed, &random, 200, [](int) { return 2.3; });
  Train(&feed, &random, 60, [](int i) { return 2.3 + 0.004 * i; });
  Train(&feed, &random, 200, [](int i) { return std::max(2.3, 2.54 - 0.01 * i); });
  EXPECT_EQ(feed.said.back().healed, true);
  EXPECT_LT(*feed.said.back().step_end, 300);
}

TEST(Divergence, AHealthyRunSaysNothing) {
  // Descent, plateau, a wave of the data's difficulty, single bad batches.
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    Feed feed = NewFeed();
    testing::Lcg random(seed);
    for (int i = 0; i < 3000; ++i) {
      const double loss = 2 + 6 * std::exp(-i / 150.0) + 0.003 * std::sin(i / 60.0) + 0.05 * random.Normal();
      feed.Scalar(Signal::kLoss, i % 500 == 499 ? 2 * loss : loss);
    }
    EXPECT_THAT(feed.said, IsEmpty()) << seed;
  }
}

TEST(Divergence, TwoPercentIsTheLeastItSpeaksOf) {
  for (const double climb : {0.018, 0.03}) {
    Feed feed = NewFeed();
    for (int i = 0; i < 600; ++i) feed.Scalar(Signal::kLoss, 2 * (i < 300 ? 1 : 1 + climb) + 0.001 * (i % 3));
    EXPECT_EQ(feed.said.empty(), climb < 0.02) << climb;
  }
}

TEST(Divergence, ARestartEndsItAndANewLevelIsLearnt) {
  Feed feed = NewFeed();
  testing::Lcg random(6);
  Train(&feed, &random, 200, [](int) { return 2.3; });
  Train(&feed, &random, 100, [](int) { return 2.8; });
  feed.Break(Break::kNewAttempt);
  ASSERT_FALSE(feed.said.empty());
  EXPECT_EQ(feed.said.back().message, "A restart at step 300 ended it.");
  feed.said.clear();
  Train(&feed, &random, 300, [](int) { return 2.8; });
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(Divergence, ACutOfTheRateStartsAnew) {
  Feed feed = NewFeed();
  for (int i = 0; i < 600; ++i)
    feed.Give([&](model::Report* r) {
      r->SetScalar(Signal::kLoss, (i < 300 ? 2 : 2.3) + 0.01 * (i % 5));
      r->SetScalar(Signal::kLearningRate, i < 300 ? 1e-4 : 1e-3);
    });
  EXPECT_THAT(feed.said, IsEmpty());
}

// LABELS.md, A14: it climbs from the first step on and is NaN at the ninth.
TEST(Divergence, WorseThanAtTheStartIsInformation) {
  Feed feed = NewFeed();
  for (const double loss : {5.47, 7.25, 8.04, 8.47, 8.18}) feed.Scalar(Signal::kLoss, loss);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 1.. open"));
  EXPECT_EQ(feed.said[0].expected, 5.47);
  feed.Scalars(Signal::kLoss, 6, 3);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 1.. open", "info 1..4 healed"));
}

TEST(Divergence, ThreeBadBatchesAtTheStartAreNothing) {
  Feed feed = NewFeed();
  for (const double loss : {5.0, 8.0, 8.0, 8.0, 5.0, 4.0}) feed.Scalar(Signal::kLoss, loss);
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(Divergence, AResumedRunHasNoStart) {
  Feed feed = NewFeed();
  feed.Scalar(Signal::kLoss, 5);
  feed.Break(Break::kNewAttempt);
  for (const double loss : {2.0, 3.0, 3.0, 3.0, 3.0, 3.0}) feed.Scalar(Signal::kLoss, loss);
  EXPECT_THAT(feed.said, IsEmpty());
}

}  // namespace
}  // namespace gyrostat::detect
