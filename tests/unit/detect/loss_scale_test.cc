#include "detect/loss_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/detect/feed.h"

namespace gyrostat::detect {
namespace {

using model::Signal;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Feed NewFeed() { return Feed(std::make_unique<LossScale>(LossScaleOptions())); }

void Give(Feed* feed, double scale, int reports, double norm = 1) {
  for (int i = 0; i < reports; ++i)
    feed->Give([&](model::Report* r) {
      r->SetScalar(Signal::kLossScale, scale);
      r->SetScalar(Signal::kGradNorm, norm);
    });
}

TEST(LossScale, FourHalvingsWithinAHundredStepsAreAWarningAndThreeAreNone) {
  for (const int cuts : {3, 4}) {
    Feed feed = NewFeed();
    Give(&feed, 65536, 60);
    for (int i = 1; i <= cuts; ++i) Give(&feed, std::exp2(16 - i), 20);
    EXPECT_EQ(feed.said.empty(), cuts == 3) << cuts;
    for (const model::Finding& finding : feed.said) EXPECT_EQ(finding.severity, model::Severity::kWarning);
  }
}

TEST(LossScale, CutsThatGrowBackAreARhythm) {
  Feed feed = NewFeed();
  Give(&feed, 65536, 60);
  for (int i = 0; i < 200; ++i) Give(&feed, i % 2 == 0 ? 32768 : 65536, 10);
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(LossScale, TheSearchAtTheStartIsNone) {
  Feed feed = NewFeed();
  for (int i = 0; i < 20; ++i) Give(&feed, std::exp2(32 - i), 1);
  Give(&feed, 4096, 500);
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(LossScale, AtOneWithOverflowsItIsLost) {
  for (const double norm : {1.0, kInf, -1.0}) {
    Feed feed = NewFeed();
    Give(&feed, 1, 100);  // A run that reports a scale of 1 throughout has none.
    EXPECT_THAT(feed.said, IsEmpty());
    Give(&feed, 1, 3, norm);
    EXPECT_EQ(feed.said.empty(), norm == 1.0) << norm;
    if (norm == 1.0) continue;
    EXPECT_EQ(feed.said[0].severity, model::Severity::kCritical);
    EXPECT_THAT(feed.said[0].message, HasSubstr("nothing is left to cut"));
  }
}

TEST(LossScale, AFallToOneIsCriticalAndTwentyCutsInARowToo) {
  Feed feed = NewFeed();
  Give(&feed, 65536, 60);
  for (int i = 1; i <= 16; ++i) Give(&feed, std::exp2(16 - i), 2);
  EXPECT_EQ(feed.said.back().severity, model::Severity::kCritical);
  Feed high = NewFeed();
  Give(&high, std::exp2(40), 60);
  for (int i = 1; i <= 20; ++i) Give(&high, std::exp2(40 - i), 1);
  EXPECT_EQ(high.said.back().severity, model::Severity::kCritical);
}

TEST(LossScale, ItEndsOnceTheScaleHolds) {
  Feed feed = NewFeed();
  Give(&feed, 65536, 60);
  for (int i = 1; i <= 5; ++i) Give(&feed, std::exp2(16 - i), 5);
  ASSERT_THAT(feed.said, SizeIs(1));
  Give(&feed, 2048, 200);
  ASSERT_THAT(feed.said, SizeIs(2));
  EXPECT_EQ(feed.said[1].healed, true);
  EXPECT_EQ(feed.said[1].step_end, 80);
}

TEST(LossScale, ASlowFallOverThreeWindowsIsInformation) {
  Feed feed = NewFeed();
  Give(&feed, 65536, 60);
  for (int i = 0; i < 8; ++i) Give(&feed, std::exp2(16 - i), 128);
  ASSERT_THAT(feed.said, SizeIs(1));
  EXPECT_EQ(feed.said[0].severity, model::Severity::kInfo);
  EXPECT_THAT(feed.said[0].message, HasSubstr("sinks"));
}

TEST(LossScale, ALogOfEvery200thStepTellsNothingOfAHundred) {
  LossScale detector{LossScaleOptions()};
  std::vector<model::Finding> said;
  for (int i = 0; i < 250; ++i) {
    model::Report report;
    report.step = 200 * i;
    report.SetScalar(Signal::kLossScale, i < 60 ? 64 : std::exp2(std::max(-1, 6 - (i - 60) / 3)));
    detector.Observe(report, &said);
  }
  EXPECT_THAT(said, IsEmpty());
}

}  // namespace
}  // namespace gyrostat::detect
