#include "detect/attn_logit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/lcg.h"
#include "unit/detect/feed.h"

namespace gyrostat::detect {
namespace {

using model::LogitKind;
using model::Signal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kNanF = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfF = std::numeric_limits<float>::infinity();

model::ModelSpec TwoByThree() {
  model::ModelSpec spec;
  spec.layers = 2;
  spec.heads = 3;
  spec.attention = model::Attention::kMha;
  return spec;
}
Feed NewFeed(model::ModelSpec spec = TwoByThree()) {
  return Feed(std::make_unique<AttnLogit>(AttnLogitOptions(), spec));
}
// Five heads at 10 and the last (layer 1, head 2) at `top`.
std::vector<float> Heads(double top) { return {10, 10, 10, 10, 10, static_cast<float>(top)}; }

std::vector<std::string> Give(Feed* feed, double top, int times = 1, LogitKind kind = LogitKind::kExact) {
  std::vector<model::Finding> fresh;
  for (int i = 0; i < times; ++i)
    for (model::Finding& f : feed->Array(Signal::kAttnLogitMax, Heads(top), kind)) fresh.push_back(std::move(f));
  return Brief(fresh);
}

TEST(AttnLogit, NamesTheHeadOverTauFromTheFirstReport) {
  Feed feed = NewFeed();
  EXPECT_THAT(Give(&feed, 101), ElementsAre("info 0.. open"));
  const model::Finding& finding = feed.said[0];
  EXPECT_EQ(finding.layer, 1u);
  EXPECT_EQ(finding.head, 2u);
  EXPECT_EQ(finding.value, 101);
  EXPECT_EQ(finding.expected, 100);
  EXPECT_EQ(finding.recommend, model::InterventionKind::kQkClip);
  EXPECT_THAT(finding.message,
              HasSubstr("Attention logit 101 in layer 1, head 2 is over tau = 100; 1 head over it"));
}

TEST(AttnLogit, AtTauIsNotOver) {
  Feed feed = NewFeed();
  EXPECT_THAT(Give(&feed, 100, 100), IsEmpty());
}

TEST(AttnLogit, OneBadBatchIsInformationThatHeals) {
  Feed feed = NewFeed();
  Give(&feed, 50, 10);
  Give(&feed, 400);
  Give(&feed, 50, 64);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 10.. open", "info 10..10 healed"));
  EXPECT_EQ(feed.said[1].value, 400);
}

TEST(AttnLogit, ThreeReportsOverTauAreAWarningWhereNobodyClips) {
  Feed feed = NewFeed();
  Give(&feed, 101);
  Give(&feed, 99);
  Give(&feed, 101);
  EXPECT_THAT(Give(&feed, 101), ElementsAre("warning 0.. open"));
}

// What K2 looks like for 50,000 steps: heads hover at tau, are clipped, and come again.
TEST(AttnLogit, HeadsThatAClipHoldsNearTauAreOneFindingOfInformation) {
  Feed feed = NewFeed();
  testing::Lcg random(1);
  for (int i = 0; i < 5000; ++i) {
    const double top = 95 * std::exp(0.15 * random.Normal());
    if (top > 100) ++feed.ledger_version;
    Give(&feed, std::min(top, 149.0));
  }
  ASSERT_EQ(feed.said.size(), 1u);
  EXPECT_EQ(feed.said[0].severity, model::Severity::kInfo);
  Give(&feed, 80, 64);
  EXPECT_EQ(feed.said.back().healed, true);
}

TEST(AttnLogit, AHeadThatStaysHighIsAWarningEvenWhileClipped) {
  Feed feed = NewFeed();
  for (int i = 0; i < 3; ++i) ++feed.ledger_version, Give(&feed, 151);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 0.. open"));
  ++feed.ledger_version;
  EXPECT_THAT(Give(&feed, 151), ElementsAre("warning 0.. open"));
  EXPECT_THAT(Give(&feed, 151, 500), IsEmpty());  // High, but it does not grow: not critical.
}

TEST(AttnLogit, HighMeansTheSameHead) {
  Feed feed = NewFeed();
  ++feed.ledger_version;
  for (int i = 0; i < 40; ++i) {
    ++feed.ledger_version;
    std::vector<float> values(6, 10.f);
    values[static_cast<size_t>(i) % 6] = 180;  // Never the same head twice in a row.
    feed.Array(Signal::kAttnLogitMax, values);
  }
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 0.. open"));
}

TEST(AttnLogit, ARunawayIsCriticalLongBeforeAThousand) {
  Feed feed = NewFeed();
  double top = 20;
  while (top < 900) Give(&feed, top *= 1.02);
  ASSERT_EQ(feed.said.back().severity, model::Severity::kCritical);
  EXPECT_LT(feed.said.back().value, 300);
  EXPECT_THAT(feed.said.back().message, HasSubstr("At this rate the maximum reaches 1000 in"));
  EXPECT_THAT(feed.said.back().message, HasSubstr("At this rate the maximum reaches 10000 in"));
}

TEST(AttnLogit, AThousandIsCriticalAtTheThirdReport) {
  Feed feed = NewFeed();
  EXPECT_THAT(Give(&feed, 2000), ElementsAre("info 0.. open"));
  EXPECT_THAT(Give(&feed, 2000), IsEmpty());
  EXPECT_THAT(Give(&feed, 2000), ElementsAre("critical 0.. open"));
}

TEST(AttnLogit, CriticalIsOverOnceTheClipHoldsThoughHeadsStillTouchTau) {
  Feed feed = NewFeed();
  Give(&feed, 2000, 5);
  feed.ledger_version = 1;
  for (int i = 0; i < 64; ++i) ++feed.ledger_version, Give(&feed, 110);
  EXPECT_THAT(Brief(feed.said), ElementsAre("info 0.. open", "critical 0.. open", "critical 0..4 healed"));
  ++feed.ledger_version;
  EXPECT_THAT(Give(&feed, 110), ElementsAre("info 69.. open"));  // What is left is news of its own.
}

TEST(AttnLogit, LowerBoundsAndNormProductsNeverRecommendAClip) {
  for (const LogitKind kind : {LogitKind::kUnknown, LogitKind::kSampledLower, LogitKind::kNormProduct}) {
    Feed feed = NewFeed();
    Give(&feed, 2000, 5, kind);
    for (const model::Finding& finding : feed.said) EXPECT_FALSE(finding.recommend) << Token(kind);
    const auto most = kind == LogitKind::kNormProduct ? model::Severity::kWarning : model::Severity::kCritical;
    EXPECT_EQ(feed.said.back().severity, most) << Token(kind);
  }
  Feed feed = NewFeed();
  Give(&feed, 101, 1, LogitKind::kLseUpper);
  EXPECT_TRUE(feed.said[0].recommend);
}

TEST(AttnLogit, UnderQkNormAClipIsRecommendedToo) {  // Of the norm's gain.
  for (const model::QkNorm norm : {model::QkNorm::kPerHead, model::QkNorm::kFlattened}) {
    model::ModelSpec spec = TwoByThree();
    spec.qk_norm = norm;
    Feed feed = NewFeed(spec);
    Give(&feed, 200);
    EXPECT_EQ(feed.said.at(0).recommend, model::InterventionKind::kQkClip);
  }
}

TEST(AttnLogit, ForecastsTauWhileStillBelow) {
  Feed feed = NewFeed();
  testing::Lcg random(2);
  int step = 0;
  for (; feed.said.empty() && step < 400; ++step) Give(&feed, 10 * std::exp(0.02 * step + 0.03 * random.Normal()));
  ASSERT_EQ(feed.said.size(), 1u);
  const model::Finding& finding = feed.said[0];
  EXPECT_EQ(finding.severity, model::Severity::kInfo);
  EXPECT_THAT(finding.message, HasSubstr("grows exponentially and reaches tau = 100 in about"));
  EXPECT_LT(finding.value, 60);
  for (; feed.said.size() < 3; ++step) Give(&feed, 10 * std::exp(0.02 * step + 0.03 * random.Normal()));
  EXPECT_EQ(feed.said[1].key, feed.said[2].key + 1);  // The excursion begins, the forecast came true.
  EXPECT_EQ(feed.said[2].healed, false);
}

TEST(AttnLogit, AForecastThatDoesNotComeTrueEnds) {
  Feed feed = NewFeed();
  for (int step = 0; step < 70; ++step) Give(&feed, 10 * std::exp(0.02 * step));
  Give(&feed, 38, 200);
  ASSERT_EQ(feed.said.size(), 2u);
  EXPECT_EQ(feed.said[1].healed, true);
}

TEST(AttnLogit, SteadyNoiseIsNotGrowth) {
  Feed feed = NewFeed();
  testing::Lcg random(3);
  for (int i = 0; i < 5000; ++i) Give(&feed, 40 * std::exp(0.1 * random.Normal()));
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(AttnLogit, IsNotBlindedByNanInfOrAbsentHeads) {
  for (const float bad : {kNanF, kInfF, -kInfF, model::kAbsent}) {
    Feed feed = NewFeed();
    for (int i = 0; i < 3; ++i) feed.Array(Signal::kAttnLogitMax, {bad, 10, 10, 10, 101, bad});
    EXPECT_THAT(Brief(feed.said), ElementsAre("info 0.. open", "warning 0.. open")) << bad;
    EXPECT_EQ(feed.said[0].head, 1u);
  }
  Feed feed = NewFeed();
  feed.Array(Signal::kAttnLogitMax, std::vector<float>(6, kNanF));
  feed.Array(Signal::kAttnLogitMax, {});
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(AttnLogit, NegativeMaximaAreHealthy) {
  Feed feed = NewFeed();
  for (int i = 0; i < 100; ++i) feed.Array(Signal::kAttnLogitMax, std::vector<float>(6, -50.f));
  EXPECT_THAT(feed.said, IsEmpty());
}

TEST(AttnLogit, ReportsWithoutLogitsHealNothing) {
  Feed feed = NewFeed();
  Give(&feed, 101, 3);
  for (int i = 0; i < 200; ++i) feed.Give([](model::Report*) {});
  EXPECT_EQ(feed.said.size(), 2u);
}

TEST(AttnLogit, ARestartEndsAndBeginsAgainAnInterventionDoesNot) {
  Feed feed = NewFeed();
  Give(&feed, 101, 3);
  feed.Break(Break::kIntervention);
  EXPECT_EQ(feed.said.size(), 2u);
  feed.Break(Break::kNewAttempt);
  EXPECT_EQ(Brief(feed.said.back()), "warning 0..2 ended");
  EXPECT_THAT(Give(&feed, 101), ElementsAre("info 3.. open"));
  EXPECT_NE(feed.said.back().key, feed.said.front().key);
}

TEST(AttnLogit, CountsPersistentOffenders) {
  Feed feed = NewFeed();
  for (int i = 0; i < 40; ++i) {
    ++feed.ledger_version;
    feed.Array(Signal::kAttnLogitMax, {120, static_cast<float>(i % 4 == 0 ? 120 : 50), 10, 10, 10, 10});
  }
  feed.said.clear();
  for (int i = 0; i < 4; ++i) feed.Array(Signal::kAttnLogitMax, {160, 10, 10, 10, 10, 10});
  EXPECT_THAT(feed.said.at(0).message, HasSubstr("1 above 1.5 tau, 1 head over it most of the time"));
}

TEST(AttnLogit, WithoutAShapeItStillSaysHowHigh) {
  Feed feed = NewFeed(model::ModelSpec{});
  EXPECT_THAT(Give(&feed, 101), ElementsAre("info 0.. open"));
  EXPECT_FALSE(feed.said[0].layer);
}

}  // namespace
}  // namespace gyrostat::detect
