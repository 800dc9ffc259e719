#include "detect/spike_score_level.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "support/lcg.h"
#include "unit/detect/feed.h"

namespace gyrostat::detect {
namespace {

using model::Signal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A short window, so that a test sees whole histories.
SpikeScoreLevelOptions Short() {
  SpikeScoreLevelOptions options;
  options.score.window = 100;
  options.evaluated_min = 200;
  options.spikes_min = 2;
  return options;
}
Feed NewFeed() { return Feed(std::make_unique<SpikeScoreLevel>(Short())); }

double Loss(int step, int every) { return every > 0 && step % every == every - 1 ? 50 : 2 + 0.1 * (step % 2); }

TEST(SpikeScoreLevel, RisesFromInformationToWarningAndIsOverWhenItHasFallen) {
  Feed feed = NewFeed();
  int step = 0;
  for (; step < 2000; ++step) feed.Scalar(Signal::kLoss, Loss(step, 0));
  for (; step < 6000; ++step) feed.Scalar(Signal::kLoss, Loss(step, 120));
  ASSERT_EQ(feed.said.size(), 2u);
  EXPECT_EQ(feed.said[0].severity, model::Severity::kInfo);
  EXPECT_EQ(feed.said[1].severity, model::Severity::kWarning);
  EXPECT_EQ(feed.said[1].signal, Signal::kSpikeScoreLoss);
  EXPECT_GE(feed.said[1].value, 0.4);
  EXPECT_THAT(feed.said[1].message, HasSubstr("spike score of loss is 0.4"));
  for (; step < 200000 && feed.said.size() < 3; ++step) feed.Scalar(Signal::kLoss, Loss(step, 0));
  ASSERT_EQ(feed.said.size(), 3u);
  EXPECT_EQ(feed.said[2].healed, true);
  EXPECT_LE(feed.said[2].value, 0.4);
}

TEST(SpikeScoreLevel, OneSpikeAmongFewStepsIsNoPercentage) {
  Feed feed = NewFeed();
  for (int step = 0; step < 150; ++step) feed.Scalar(Signal::kLoss, step == 120 ? 50 : Loss(step, 0));
  EXPECT_THAT(feed.said, IsEmpty());
}

// The published definition keeps a spike in its baseline: one of any size hides lesser ones, for one window.
TEST(SpikeScoreLevel, IsBlindedForOneWindowAtMost) {
  const auto found_at = [](double bad, std::optional<Break> kind) {
    Feed feed = NewFeed();
    for (int step = 0; step < 9000; ++step) {
      if (step == 1950 && kind) feed.Break(*kind);
      feed.Scalar(Signal::kLoss, step == 1990 && bad != 0 ? bad : Loss(step, step < 2000 ? 0 : 120));
      if (step >= 2000 && !feed.said.empty()) return step;
    }
    return -1;
  };
  const int without = found_at(0, {});
  ASSERT_GE(without, 2000);
  for (const double bad : {1e30, 1e6, -1e30, kNan, kInf, -kInf, -1.0, static_cast<double>(model::kAbsent)}) {
    const int with = found_at(bad, {});
    EXPECT_GE(with, 2000) << bad;
    // A spike that the window hides is missing from the count; the next one comes 120 steps later.
    EXPECT_LE(with, without + 120) << bad;
  }
  for (const Break kind : {Break::kNewAttempt, Break::kNewEpoch, Break::kIntervention})
    EXPECT_EQ(found_at(0, kind), without);
}

TEST(SpikeScoreLevel, ARestartDoesNotEmptyTheWindow) {
  Feed feed = NewFeed();
  for (int step = 0; step < 3000; ++step) {
    if (step % 90 == 89) feed.Break(Break::kNewAttempt);  // Never a full window within one attempt.
    feed.Scalar(Signal::kLoss, Loss(step, 120));
  }
  ASSERT_FALSE(feed.said.empty());
  EXPECT_EQ(feed.said.back().severity, model::Severity::kWarning);
}

TEST(SpikeScoreLevel, MinusOneIsNotAGradientNorm) {
  Feed feed = NewFeed();
  for (int step = 0; step < 3000; ++step)
    feed.Scalar(Signal::kGradNorm, step % 120 == 119 ? -1 : 0.5 + 1e-6 * (step % 2));
  EXPECT_THAT(feed.said, IsEmpty());
}

// A client that computes its score with the same code, plus an error.
class Compared {
 public:
  std::vector<model::Finding> Step(double loss, double error) {
    client_.Observe(loss);
    return feed.Give([&](model::Report* r) {
      r->SetScalar(Signal::kLoss, loss);
      r->SetScalar(Signal::kSpikeScoreLoss, client_.percent() + error);
    });
  }
  void Restart() {
    client_ = stats::SpikeScore(Short().score);
    feed.Break(Break::kNewAttempt);
  }
  void LoseOne(double loss) {
    client_.Observe(loss);
    feed.SkipSequence();
  }
  Feed feed = NewFeed();

 private:
  stats::SpikeScore client_{Short().score};
};

TEST(SpikeScoreLevel, AgreesWithAClientOfTheSameValues) {
  Compared run;
  testing::Lcg random(1);
  for (int step = 0; step < 600; ++step) run.Step(step == 300 ? kNan : random.Normal(), 0);
  EXPECT_THAT(run.feed.said, IsEmpty());
}

TEST(SpikeScoreLevel, SaysOnceThatTheClientsNumberIsNotWhatItsValuesGive) {
  Compared run;
  for (int step = 0; step < 10; ++step) run.Step(2, 0);
  for (int step = 0; step < 10; ++step) run.Step(2, 0.01);
  ASSERT_EQ(run.feed.said.size(), 1u);
  EXPECT_EQ(Brief(run.feed.said[0]), "warning 10.. open");
  EXPECT_EQ(run.feed.said[0].expected, 0);
  EXPECT_THAT(run.feed.said[0].message, HasSubstr("spike_score_loss is 0.01 %, but its values give 0 % here"));
  run.Restart();
  EXPECT_EQ(Brief(run.feed.said.back()), "warning 10..20 ended");
}

TEST(SpikeScoreLevel, ANanScoreDisagrees) {
  Compared run;
  EXPECT_EQ(run.Step(2, kNan).size(), 1u);
}

TEST(SpikeScoreLevel, ComparesNothingAfterAGapUntilTheNextAttempt) {
  Compared run;
  for (int step = 0; step < 10; ++step) run.Step(2, 0);
  run.LoseOne(2);
  for (int step = 0; step < 10; ++step) run.Step(2, 5);
  EXPECT_THAT(run.feed.said, IsEmpty());
  run.Restart();
  EXPECT_EQ(run.Step(2, 5).size(), 1u);
}

}  // namespace
}  // namespace gyrostat::detect
