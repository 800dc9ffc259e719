#include "detect/adam_eps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/detect/feed.h"

namespace gyrostat::detect {
namespace {

using model::Signal;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kRoot = 3.4641016151377544 * 100;  // sqrt(12) times the width of 100.

Feed NewFeed(const std::string& optimizer = "AdamW", uint32_t width = 100) {
  model::ModelSpec spec;
  spec.layers = 2;
  spec.hidden_size = width;
  spec.optimizer = optimizer;
  return Feed(std::make_unique<AdamEps>(AdamEpsOptions(), spec));
}

// Layer 1 has gradients with an RMS of `times` epsilon.
void Give(Feed* feed, double times, int reports) {
  for (int i = 0; i < reports; ++i)
    feed->Array(Signal::kLayerGradNorm, {1.f, static_cast<float>(times * 1e-8 * kRoot)});
}

TEST(AdamEps, NineTimesEpsilonIsInformationAndEpsilonAWarning) {
  for (const double times : {9.1, 8.9, 1.01, 0.99}) {
    Feed feed = NewFeed();
    Give(&feed, times, 64);
    if (times > 9) {
      EXPECT_THAT(feed.said, IsEmpty()) << times;
      continue;
    }
    ASSERT_THAT(feed.said, SizeIs(1)) << times;
    EXPECT_EQ(feed.said[0].severity, times < 1 ? model::Severity::kWarning : model::Severity::kInfo) << times;
    EXPECT_EQ(feed.said[0].layer, 1u);
  }
}

TEST(AdamEps, ItMustLastAndEndsAtTwiceTheLine) {
  Feed feed = NewFeed();
  Give(&feed, 5, 63);
  EXPECT_THAT(feed.said, IsEmpty());
  Give(&feed, 5, 1);
  EXPECT_THAT(feed.said, SizeIs(1));
  Give(&feed, 15, 50);
  EXPECT_THAT(feed.said, SizeIs(1));
  Give(&feed, 20, 1);
  ASSERT_THAT(feed.said, SizeIs(2));
  EXPECT_EQ(feed.said[1].step_end, 63);
}

TEST(AdamEps, TheUpdateThatIsLeftIsTold) {
  Feed feed = NewFeed();
  Give(&feed, 1, 70);
  EXPECT_THAT(feed.said.back().message, HasSubstr("updates are 0.5 of"));
}

TEST(AdamEps, OtherOptimizersAndUnknownWidthsAreSilent) {
  for (const auto& [optimizer, width] : {std::pair("muon", 100u), std::pair("", 100u), std::pair("adam", 0u)}) {
    Feed feed = NewFeed(optimizer, width);
    Give(&feed, 0.1, 200);
    EXPECT_THAT(feed.said, IsEmpty());
  }
}

TEST(AdamEps, AFrozenOrUnmeasuredLayerIsNotSmall) {
  Feed feed = NewFeed();
  for (const double norm : {0.0, -1.0, kNan, static_cast<double>(model::kAbsent)})
    for (int i = 0; i < 100; ++i) feed.Array(Signal::kLayerGradNorm, {1.f, static_cast<float>(norm)});
  EXPECT_THAT(feed.said, IsEmpty());
}

}  // namespace
}  // namespace gyrostat::detect
