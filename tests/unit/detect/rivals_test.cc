// The rules of other tools, restated: that they are what their sources say, and as blind as they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "detect/catalog.h"
#include "detect/rivals/trainer_rules.h"
#include "detect/rivals/window_rules.h"
#include "support/lcg.h"
#include "unit/detect/feed.h"

namespace gyrostat::detect {
namespace {

using model::Signal;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Feed NewFeed(const std::string& rules, model::ModelSpec spec = {}) {
  auto made = MakeRuleSet(rules, DetectOptions(), spec);
  EXPECT_EQ(made.size(), 1u) << rules;
  return Feed(std::move(made[0]));
}

std::vector<model::Step> Begins(const std::vector<model::Finding>& said) {
  std::vector<model::Step> steps;
  for (const model::Finding& f : said)
    if (!f.step_end) steps.push_back(f.step_begin);
  return steps;
}

// Of all steps from `from` on: on how many the rule fired.
int StepsFired(const std::vector<model::Finding>& said, model::Step last) {
  int fired = 0;
  std::map<uint64_t, model::Finding> latest;
  for (const model::Finding& f : said) latest[f.key] = f;
  for (const auto& [key, f] : latest) fired += static_cast<int>(f.step_end.value_or(last) - f.step_begin + 1);
  return fired;
}

// anchors.md §2.20: mean 2, sigma 0.02, one bad value at 200, true spikes of 6 after it.
std::vector<model::Finding> Table(const std::string& rules, double bad, std::vector<model::Step> spikes, int steps) {
  Feed feed = NewFeed(rules);
  testing::Lcg random(9);
  for (int step = 0; step < steps; ++step) {
    double loss = 2 + 0.02 * random.Normal();
    if (step == 200) loss = bad;
    if (std::find(spikes.begin(), spikes.end(), step) != spikes.end()) loss = 6;
    feed.Scalar(Signal::kLoss, loss);
  }
  return feed.said;
}

TEST(Rivals, OneBadValueBlindsTheWindowRule) {
  const std::vector<model::Step> spikes = {210, 300, 320, 400};
  const auto sees = [&](double bad) { return Begins(Table("olmo-core", bad, spikes, 600)); };
  EXPECT_THAT(sees(6), ElementsAre(200, 210, 300, 320, 400));
  EXPECT_THAT(sees(1e6), ElementsAre(200, 400));
  EXPECT_THAT(sees(kInf), ElementsAre(200, 400));
  EXPECT_THAT(sees(kNan), ElementsAre(400));
}

TEST(Rivals, OneBadValueMakesTheSkipRuleSkipAWholeWindow) {
  const std::vector<model::Step> spikes = {210, 300, 320, 400};
  const auto skips = [&](double bad) { return StepsFired(Table("olmo-core-skip", bad, spikes, 600), 599); };
  EXPECT_EQ(skips(6), 5);
  EXPECT_EQ(skips(1e6), 2);
  EXPECT_EQ(skips(kInf), 130);
  EXPECT_EQ(skips(kNan), 130);
}

TEST(Rivals, OneNanDisablesTheRunningSumsForGood) {
  const std::vector<model::Step> spikes = {300, 400, 500};
  EXPECT_THAT(Begins(Table("llmc", 6, spikes, 700)), ::testing::IsSupersetOf({300, 400, 500}));
  EXPECT_THAT(Begins(Table("llmc", kNan, {300, 400, 500, 5000}, 6000)), IsEmpty());
}

TEST(Rivals, OurRulesSeeAllOfItWhateverCameBefore) {
  for (const double bad : {6.0, 1e6, kInf, kNan}) {
    auto ours = MakeRuleSet("gyrostat", DetectOptions(), {});
    std::vector<model::Step> begins;
    for (auto& detector : ours) {
      if (detector->name() != "loss_spike") continue;
      Feed feed(std::move(detector));
      testing::Lcg random(9);
      for (int step = 0; step < 600; ++step) {
        const bool spike = step == 210 || step == 300 || step == 320 || step == 400;
        const double usual = 2 + 0.02 * random.Normal();
        feed.Scalar(Signal::kLoss, step == 200 ? bad : spike ? 6 : usual);
      }
      begins = Begins(feed.said);
      std::erase(begins, 200);
    }
    EXPECT_THAT(begins, ElementsAre(210, 300, 320, 400)) << bad;
  }
}

TEST(Rivals, OlmoCoreNeedsAFullWindowAndLooksUpwardsOnly) {
  for (const int known : {127, 128}) {
    for (const double spike : {9.0, -9.0}) {
      Feed feed = NewFeed("olmo-core");
      for (int i = 0; i < known; ++i) feed.Scalar(Signal::kGradNorm, 1 + 0.1 * (i % 2));
      feed.Scalar(Signal::kGradNorm, spike);
      EXPECT_EQ(feed.said.empty(), known < 128 || spike < 0) << known << " " << spike;
    }
  }
}

TEST(Rivals, Olmo2NeedsAThousandValuesAndLooksBothWays) {
  for (const int known : {999, 1000}) {
    for (const double away : {6.9, 7.1}) {
      Feed feed = NewFeed("olmo2");
      for (int i = 0; i < known; ++i) feed.Scalar(Signal::kLoss, i % 2 == 0 ? 1 : 3);  // Mean 2, deviation 1.
      feed.Scalar(Signal::kLoss, 2 - away);
      EXPECT_EQ(feed.said.empty(), known < 1000 || away < 7) << known << " " << away;
    }
  }
}

TEST(Rivals, ZClipFiresAbove2Point5AndANanSwitchesItOff) {
  for (const double bad : {1.0, kNan}) {
    Feed feed = NewFeed("zclip");
    for (int i = 0; i < 40; ++i) feed.Scalar(Signal::kGradNorm, 1 + 0.1 * (i % 2));
    EXPECT_THAT(feed.said, IsEmpty());
    feed.Scalar(Signal::kGradNorm, bad);
    feed.Scalars(Signal::kGradNorm, 1.05, 20);
    feed.Scalar(Signal::kGradNorm, 50);
    EXPECT_EQ(feed.said.empty(), std::isnan(bad));
    feed.Break(Break::kNewAttempt);  // It has no state in the checkpoint: it learns again.
    for (int i = 0; i < 40; ++i) feed.Scalar(Signal::kGradNorm, 1 + 0.1 * (i % 2));
    feed.Scalar(Signal::kGradNorm, 50);
    EXPECT_FALSE(feed.said.empty());
  }
}

TEST(Rivals, MegatronIsFrozenAfterAHundredSamples) {
  for (const double loss : {109.0, 110.0}) {
    Feed feed = NewFeed("megatron");
    for (int i = 0; i < 100; ++i) feed.Scalar(Signal::kLoss, 11 - 0.05 * i);
    feed.Scalars(Signal::kLoss, 2, 500);
    feed.Scalar(Signal::kLoss, kNan);
    feed.Scalar(Signal::kLoss, 20);  // Ten times what it has been for 500 steps.
    feed.Scalar(Signal::kLoss, loss);
    EXPECT_EQ(feed.said.empty(), loss < 110) << loss;
  }
}

TEST(Rivals, LlmFoundryNeedsFiveInARow) {
  for (const int times : {4, 5}) {
    Feed feed = NewFeed("llm-foundry");
    feed.Scalars(Signal::kLoss, 2, 150);
    feed.Scalars(Signal::kLoss, 5, times);
    feed.Scalars(Signal::kLoss, 2, 3);
    EXPECT_EQ(feed.said.empty(), times == 4);
    for (const model::Finding& finding : feed.said) EXPECT_EQ(finding.step_begin, 154);
  }
}

TEST(Rivals, LlmFoundrysWindowIsATwentiethOfTheRun) {
  for (const uint64_t total : {1000u, 10000u}) {
    model::ModelSpec spec;
    spec.total_steps = total;
    Feed feed = NewFeed("llm-foundry", spec);
    feed.Scalars(Signal::kLoss, 2, 300);
    feed.Scalars(Signal::kLoss, 5, 6);
    EXPECT_EQ(feed.said.empty(), total == 10000) << total;  // Its window of 500 is not full.
  }
}

TEST(Rivals, LightningStopsAtThreeMeansAndAtNan) {
  for (const double loss : {5.9, 6.1, kNan}) {
    Feed feed = NewFeed("lightning");
    feed.Scalars(Signal::kLoss, 2, 20);
    feed.Scalar(Signal::kLoss, loss);
    EXPECT_EQ(feed.said.empty(), loss < 6) << loss;
  }
}

TEST(Rivals, StepsInARowAreOneFinding) {
  Feed feed = NewFeed("lightning");
  feed.Scalars(Signal::kLoss, 2, 20);
  feed.Scalars(Signal::kLoss, kNan, 5);
  feed.Scalars(Signal::kLoss, 2, 5);
  EXPECT_THAT(Brief(feed.said), ElementsAre("critical 20.. open", "critical 20..24 ended"));
}

TEST(Rivals, AreNoneOfTheDaemonsDetectors) {
  for (const std::string_view rules : RuleSetNames()) {
    const auto made = MakeRuleSet(rules, DetectOptions(), {});
    EXPECT_FALSE(made.empty()) << rules;
    if (rules == "gyrostat") continue;
    for (const std::string_view ours : DetectorNames()) EXPECT_NE(made[0]->name(), ours);
  }
  EXPECT_TRUE(MakeRuleSet("all", DetectOptions(), {}).empty());
}

}  // namespace
}  // namespace gyrostat::detect
