#include "detect/headroom.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/lcg.h"
#include "unit/detect/feed.h"
#include "unit/detect/resume.h"

namespace gyrostat::detect {
namespace {

using model::Signal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

model::ModelSpec Half() {
  model::ModelSpec spec = Placed(model::NormPlacement::kPre, 3);
  spec.hidden_size = 1024;
  spec.compute_dtype = "fp16";
  return spec;
}
Maker Make(model::ModelSpec spec = Half()) {
  return [spec] { return std::make_unique<Headroom>(HeadroomOptions(), spec); };
}
void Give(Feed* feed, double largest, int times = 1) {
  for (int i = 0; i < times; ++i) feed->Array(Signal::kHiddenAbsmax, {10, static_cast<float>(largest), 20});
}

TEST(Headroom, ForecastsTheOverflowOfFp16WithAnInterval) {
  testing::Lcg random(1);
  Feed feed(Make()());
  double largest = 100;
  for (int i = 0; feed.said.empty() && i < 400; ++i) Give(&feed, (largest *= 1.02) * std::exp(0.05 * random.Normal()));
  ASSERT_EQ(feed.said.size(), 1u);
  const model::Finding& finding = feed.said[0];
  EXPECT_EQ(finding.severity, model::Severity::kWarning);
  EXPECT_EQ(finding.layer, 1u);
  EXPECT_EQ(finding.recommend, model::InterventionKind::kLrScale);
  EXPECT_LT(finding.value, 8188);  // Before the level itself is high.
  // What it says comes true within a third: 2 % a step.
  const double truth = std::log(65504 / finding.value) / std::log(1.02);
  double said = 0, soonest = 0;
  const char* text = std::strstr(finding.message.c_str(), "overflows in");
  ASSERT_NE(text, nullptr) << finding.message;
  ASSERT_EQ(std::sscanf(text, "overflows in %lf steps, at the soonest in %lf", &said, &soonest), 2);
  EXPECT_NEAR(said, truth, truth / 3);
  EXPECT_LT(soonest, said);
}

TEST(Headroom, SaysHowManyStepsAreLeftLongBeforeItSaysAFinding) {
  Feed feed(Make()());
  double largest = 20;
  for (int i = 0; i < 31; ++i) Give(&feed, largest *= 1.02);
  EXPECT_EQ(feed.detector().StepsLeft(), std::nullopt) << "too few reports";
  for (int i = 0; i < 40; ++i) Give(&feed, largest *= 1.02);
  EXPECT_THAT(feed.said, IsEmpty());
  const double truth = std::log(65504 / largest) / std::log(1.02);
  ASSERT_TRUE(feed.detector().StepsLeft().has_value());
  EXPECT_NEAR(*feed.detector().StepsLeft(), truth, 0.02 * truth);
  Give(&feed, 70000);
  EXPECT_LT(*feed.detector().StepsLeft(), truth);
  feed.Break(Break::kNewAttempt);
  EXPECT_EQ(feed.detector().StepsLeft(), std::nullopt);
  Give(&feed, 300, 64);
  EXPECT_EQ(feed.detector().StepsLeft(), std::numeric_limits<double>::infinity());
  model::ModelSpec single = Half();
  single.compute_dtype = "fp32";
  Feed other(Make(single)());
  Give(&other, 300, 64);
  EXPECT_EQ(other.detector().StepsLeft(), std::nullopt) << "its range is never reached";
}

TEST(Headroom, LevelsCountFromTheThirdReport) {
  Feed feed(Make()());
  Give(&feed, 9000, 2);
  Give(&feed, 100, 40);
  Give(&feed, 40000, 2);
  Give(&feed, 100, 40);
  EXPECT_THAT(feed.said, IsEmpty());
  Give(&feed, 9000, 3);
  EXPECT_THAT(Brief(feed.said), ElementsAre("warning 86.. open"));
  Give(&feed, 40000, 3);
  EXPECT_EQ(feed.said.back().severity, model::Severity::kCritical);
  Give(&feed, 100, 32);
  EXPECT_EQ(feed.said.back().healed, true);
}

TEST(Headroom, JustBelowTheLevelWithoutGrowthIsFine) {
  Feed feed(Make()());
  Give(&feed, 8187, 500);
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(Headroom, Bf16OverflowsFarAbove) {
  model::ModelSpec spec = Half();
  spec.compute_dtype = "bf16";
  Feed feed(Make(spec)());
  Give(&feed, 1e37, 50);
  EXPECT_THAT(feed.said, IsEmpty()) << "a thirty-second of the range";
  Give(&feed, 5e37, 5);
  ASSERT_EQ(feed.said.size(), 1u);
  EXPECT_EQ(feed.said[0].severity, model::Severity::kWarning);
  EXPECT_THAT(feed.said[0].message, HasSubstr("of bf16's 3.38953e+38"));
}

TEST(Headroom, Bf16AndUnknownTypesDoNotOverflowHere) {
  for (const char* dtype : {"bf16", "fp8_e4m3", "fp32", ""}) {
    model::ModelSpec spec = Half();
    spec.compute_dtype = dtype;
    Feed feed(Make(spec)());
    Give(&feed, 60000, 50);
    EXPECT_THAT(feed.said, IsEmpty()) << dtype;
  }
}

// gpt-oss: residual 58,820 + branch 33,760 > 65,504 though each fits (methods.md §8.1).
TEST(Headroom, TheSumWithTheBranchCounts) {
  const double gaussian = std::sqrt(2 * std::log(1024));
  const auto give = [&](Feed* feed, double branch) {
    for (int i = 0; i < 5; ++i)
      feed->Give([&](model::Report* r) {
        r->MutableArray(Signal::kHiddenAbsmax) = {10, 10, 5000, 20};
        r->MutableArray(Signal::kMlpOutMs) = {1, static_cast<float>(std::pow(branch / gaussian, 2)), 1};
      });
  };
  Feed small(Make()()), large(Make()());
  give(&small, 1000);
  give(&large, 4000);
  EXPECT_THAT(small.said, IsEmpty());
  ASSERT_THAT(Brief(large.said), ElementsAre("warning 2.. open"));
  EXPECT_EQ(large.said[0].layer, 1u);
  EXPECT_NEAR(large.said[0].value, 9000, 1);
}

TEST(Headroom, MeanSquaresStandInForMissingEntries) {
  Feed feed(Make()());
  for (int i = 0; i < 3; ++i) feed.Array(Signal::kHiddenMs, {1, 9e6f, 1});  // RMS 3000, times 3.72.
  ASSERT_EQ(feed.said.size(), 1u);
  EXPECT_EQ(feed.said[0].signal, Signal::kHiddenMs);
  EXPECT_THAT(feed.said[0].message, HasSubstr("estimated"));
}

TEST(Headroom, NanAndAbsentHideNothing) {
  Feed feed(Make()());
  for (int i = 0; i < 3; ++i) {
    feed.Array(Signal::kHiddenAbsmax, {std::numeric_limits<float>::quiet_NaN(), 9000, model::kAbsent});
    feed.Array(Signal::kHiddenAbsmax, {model::kAbsent, model::kAbsent, model::kAbsent});
  }
  EXPECT_EQ(feed.said.size(), 1u);
}

TEST(Headroom, EpsThatSwampsTheInputOfANorm) {
  model::ModelSpec spec = Half();
  spec.norm_eps = 1e-5;
  Feed feed(Make(spec)()), fine(Make(spec)());
  for (int i = 0; i < 32; ++i) feed.Array(Signal::kHiddenMs, {1e-3f, 9e-5f, 1e-3f});
  for (int i = 0; i < 100; ++i) fine.Array(Signal::kHiddenMs, {1e-3f, 1.1e-4f, 1e-3f});
  ASSERT_THAT(Brief(feed.said), ElementsAre("info 0.. open"));
  EXPECT_EQ(feed.said[0].layer, 1u);
  EXPECT_THAT(feed.said[0].message, HasSubstr("0.949 of what it should be"));
  EXPECT_THAT(fine.said, IsEmpty());
  for (int i = 0; i < 2; ++i) feed.Array(Signal::kHiddenMs, {1e-3f, 9e-6f, 1e-3f});
  EXPECT_EQ(feed.said.back().severity, model::Severity::kWarning);
}

TEST(Headroom, ResumesBitForBit) {
  const auto said = ExpectResumable(Make(), Reports(240, [](int step, model::Report* r) {
    testing::Lcg random(static_cast<uint64_t>(step));
    const double largest = step < 180 ? 20 * std::exp(0.05 * std::min(step, 150) + 0.05 * random.Normal()) : 30;
    r->MutableArray(Signal::kHiddenAbsmax) = {1, static_cast<float>(step % 25 == 4 ? kInf : largest), 3};
  }));
  EXPECT_THAT(Brief(said), ElementsAre(HasSubstr("warning"), HasSubstr("critical"), HasSubstr("healed")));
}

}  // namespace
}  // namespace gyrostat::detect
