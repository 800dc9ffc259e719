#include "engine/tally.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "support/lcg.h"
#include "support/plain_run.h"

namespace gyrostat::engine {
namespace {

using model::Signal;

RunState Shown(const Tally& tally) {
  RunState view;
  tally.Show(&view);
  return view;
}

model::Report WithMaxima(std::vector<float> maxima) {
  model::Report report;
  report.MutableArray(Signal::kAttnLogitMax) = std::move(maxima);
  return report;
}

model::ModelSpec Spec(uint32_t layers, uint32_t heads) {
  model::ModelSpec spec;
  spec.layers = layers;
  spec.heads = heads;
  return spec;
}

TEST(Tally, ShowsTheEightWorstHeadsLargestFirst) {
  std::vector<float> maxima(20);
  std::iota(maxima.begin(), maxima.end(), 0.0f);
  Tally tally;
  tally.TakeReport(WithMaxima(maxima), Spec(4, 5), 15);
  const RunState view = Shown(tally);
  ASSERT_EQ(view.worst_heads.size(), 8u);
  EXPECT_EQ(view.worst_heads[0].layer, 3u);
  EXPECT_EQ(view.worst_heads[0].head, 4u);
  EXPECT_EQ(view.worst_heads[0].value, 19);
  EXPECT_EQ(view.worst_heads[7].value, 12);
  EXPECT_EQ(view.heads_over_tau, 4u) << "15 is not over 15";
}

TEST(Tally, CountsEachObservationInOneBucket) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  Tally tally;
  tally.TakeReport(WithMaxima({-3, 1, 1.5f, 10000, 10001, inf, nan, model::kAbsent}), Spec(1, 8), 100);
  const RunState view = Shown(tally);
  ASSERT_EQ(view.attn_logit_histogram.size(), std::size(kAttnLogitBuckets) + 1);
  EXPECT_EQ(view.attn_logit_histogram[0], 2u) << "upper bounds belong to their bucket";
  EXPECT_EQ(view.attn_logit_histogram[1], 1u);
  EXPECT_EQ(view.attn_logit_histogram[11], 1u);
  EXPECT_EQ(view.attn_logit_histogram[12], 2u);
  EXPECT_EQ(view.attn_logit_sum, -3 + 1 + 1.5 + 10000 + 10001);
  EXPECT_EQ(view.worst_heads[0].value, inf);
}

TEST(Tally, CountsMoreThanABlockAsOneByOne) {
  std::vector<float> values;
  testing::Lcg random(3);
  for (int i = 0; i < 5'003; ++i) values.push_back(static_cast<float>(std::exp(12 * random.Uniform() - 2)));
  std::vector<uint64_t> wanted(std::size(kAttnLogitBuckets) + 1);
  uint32_t over = 0;
  for (const float value : values) {
    ++wanted[static_cast<size_t>(std::ranges::lower_bound(kAttnLogitBuckets, static_cast<double>(value)) -
                                 std::begin(kAttnLogitBuckets))];
    if (value > 100) ++over;
  }
  Tally tally;
  tally.TakeReport(WithMaxima(values), Spec(1, 5'003), 100);
  EXPECT_EQ(Shown(tally).attn_logit_histogram, wanted);
  EXPECT_EQ(Shown(tally).heads_over_tau, over);
}

TEST(Tally, KeepsTheWorstHeadsWhileMaximaAreNotReported) {
  Tally tally;
  tally.TakeReport(WithMaxima({5, 6}), Spec(1, 2), 100);
  tally.TakeReport(model::Report(), Spec(1, 2), 100);
  EXPECT_EQ(Shown(tally).worst_heads.size(), 2u);
}

TEST(Tally, ReadsMaximaWithoutASpec) {
  Tally tally;
  tally.TakeReport(WithMaxima({5, 6}), Spec(0, 0), 100);
  EXPECT_EQ(Shown(tally).worst_heads[0].layer, 0u);
  EXPECT_EQ(Shown(tally).worst_heads[0].head, 1u);
}

TEST(Tally, CountsAnIntentOncePerStateAndOutcome) {
  Tally tally;
  model::Intervention intent;
  intent.id = "run/1";
  const auto say = [&](model::InterventionState state) {
    intent.state = state;
    tally.TakeInterventions({intent});
  };
  say(model::InterventionState::kSent);
  intent.orders = 2;
  say(model::InterventionState::kSent);
  say(model::InterventionState::kApplied);
  intent.outcome = model::Outcome::kEffective;
  say(model::InterventionState::kApplied);
  say(model::InterventionState::kJudged);
  using Totals = std::vector<std::pair<std::string, uint64_t>>;
  EXPECT_EQ(Shown(tally).interventions_total,
            (Totals{{"qk_clip/applied", 1}, {"qk_clip/judged", 1}, {"qk_clip/sent", 1}}));
  EXPECT_EQ(Shown(tally).outcomes_total, (Totals{{"qk_clip/effective", 1}}));
}

TEST(Tally, KeepsTheLastSixteenDecisions) {
  Tally tally;
  for (model::Step step = 1; step <= 20; ++step)
    tally.TakeDecisions({{step, model::InterventionKind::kQkClip, false, "no"}});
  const RunState view = Shown(tally);
  ASSERT_EQ(view.recent_decisions.size(), 16u);
  EXPECT_EQ(view.recent_decisions.front().step, 5);
  EXPECT_EQ(view.recent_decisions.back().step, 20);
}

}  // namespace
}  // namespace gyrostat::engine
