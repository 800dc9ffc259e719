#include "detect/log_z.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/lcg.h"
#include "unit/detect/feed.h"

namespace gyrostat::detect {
namespace {

using model::Signal;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Feed NewFeed(const std::string& dtype = "bf16") {
  model::ModelSpec spec;
  spec.compute_dtype = dtype;
  return Feed(std::make_unique<LogZ>(LogZOptions(), spec));
}

template <class Level>
void Train(Feed* feed, Signal signal, int steps, Level level) {
  testing::Lcg random(1);
  for (int i = 0; i < steps; ++i) feed->Scalar(signal, level(i) + 0.1 * random.Normal());
}

TEST(LogZ, ADriftOfFiveNatsIsInformationWhicheverWayItGoes) {
  for (const double sign : {1.0, -1.0}) {
    Feed feed = NewFeed();
    Train(&feed, Signal::kLogZ, 600, [=](int i) { return sign * (2 + 0.02 * std::max(0, i - 200)); });
    ASSERT_EQ(feed.said.size(), 1u) << sign;
    EXPECT_EQ(feed.said[0].severity, model::Severity::kInfo);
    EXPECT_EQ(feed.said[0].signal, Signal::kLogZ);
    EXPECT_NEAR(static_cast<double>(feed.said[0].step_begin), 460, 30);
    EXPECT_LT(sign * feed.said[0].expected, 2.5);
    EXPECT_GT(sign * feed.said[0].value, 6);
  }
}

TEST(LogZ, WhereTheComputeTypeRoundsItIsAWarning) {
  for (const std::string dtype : {"bf16", "fp16"}) {
    Feed feed = NewFeed(dtype);
    Train(&feed, Signal::kLogZ, 800, [](int i) { return 2 + 0.25 * std::max(0, i - 200); });  // Up to 152.
    EXPECT_EQ(feed.said.back().severity, dtype == "bf16" ? model::Severity::kWarning : model::Severity::kInfo) << dtype;
  }
}

TEST(LogZ, ALevelThatWasAlwaysHighIsNoDrift) {
  Feed feed = NewFeed();
  Train(&feed, Signal::kLogZ, 600, [](int) { return 200; });
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(LogZ, LargestLogitsMayGrowUntilTheyRound) {
  for (const double most : {100.0, 200.0}) {
    Feed feed = NewFeed();
    Train(&feed, Signal::kOutputLogitAbsmax, 900,
          [=](int i) { return std::min(most, 10 + 0.25 * std::max(0, i - 100)); });
    EXPECT_EQ(feed.said.empty(), most < 128) << most;
    for (const model::Finding& finding : feed.said) EXPECT_THAT(finding.message, HasSubstr("z-loss"));
  }
}

TEST(LogZ, ItEndsWhenLogZIsBack) {
  Feed feed = NewFeed();
  Train(&feed, Signal::kLogZ, 200, [](int) { return 2; });
  Train(&feed, Signal::kLogZ, 100, [](int) { return 10; });
  Train(&feed, Signal::kLogZ, 100, [](int) { return 2; });
  EXPECT_EQ(feed.said.back().healed, true);
}

}  // namespace
}  // namespace gyrostat::detect
