// The clip loop under delay, the table of protocol.md §1.8: one head whose logits grow by g nats a step, measured with
// log noise, clipped by orders that arrive late. Why a clip is an absolute target on a ledger and not a multiplication.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "remedy/qk_clip.h"
#include "support/lcg.h"

namespace gyrostat::remedy {
namespace {

constexpr double kTau = 30, kGrowth = 0.07, kNoise = 0.15;
constexpr int kSteps = 1500, kSettled = 500;
constexpr int kSeeds = 5;

enum class Rule { kNaive, kLedger };

struct Range {
  double peak = 0, trough = HUGE_VAL;  // Of the maximum without its noise; the trough once settled.
};

Range Simulate(Rule rule, size_t delay) {
  Range range;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    testing::Lcg random(seed);
    ClipLedger ledger(1, 1);
    struct InFlight {
      double gamma;
      Ticks target;
    };
    std::deque<InFlight> orders(delay, {1, 0});
    double size = std::log(10.0);  // Of the head without any clip, in nats.
    double naive = 0;
    for (int step = 0; step < kSteps; ++step) {
      size += kGrowth;
      const double clipped = rule == Rule::kNaive ? naive : static_cast<double>(ledger.At(0, 0)) / kTicksPerNat;
      const double max = std::exp(size - clipped);
      range.peak = std::max(range.peak, max);
      if (step > kSettled) range.trough = std::min(range.trough, max);
      const double seen = max * std::exp(kNoise * random.Normal());
      orders.push_back({*Gamma(seen, kTau), ClipTarget(seen, kTau, ledger.At(0, 0)).value_or(0)});
      naive -= std::log(orders.front().gamma);
      ClipPlan plan;
      PlanClip({model::ClipVariant::kMha, 0.5, 1, 1, 1}, {{0, 0, 0, orders.front().target}}, ledger, &plan);
      EXPECT_TRUE(ledger.Apply(plan.charged));
      orders.pop_front();
    }
  }
  return range;
}

TEST(ClipDelay, LedgerKeepsTheHeadAliveAtAnyDelay) {
  for (const size_t delay : {0u, 1u, 2u, 5u, 20u}) {
    const Range ledger = Simulate(Rule::kLedger, delay);
    // The peak stays near tau times the growth during the delay times the noise; the trough never collapses.
    EXPECT_LT(ledger.peak, kTau * std::exp(kGrowth * static_cast<double>(delay + 1)) * std::exp(3 * kNoise)) << delay;
    EXPECT_GT(ledger.trough, kTau * std::exp(-4 * kNoise)) << delay;
  }
}

TEST(ClipDelay, NaiveMultiplicationKillsTheHeadWhereTheLedgerDoesNot) {
  const Range naive = Simulate(Rule::kNaive, 20), ledger = Simulate(Rule::kLedger, 20);
  EXPECT_LT(naive.trough, 1e-3);
  EXPECT_GT(ledger.trough, kTau);
  const Range naive2 = Simulate(Rule::kNaive, 2), ledger2 = Simulate(Rule::kLedger, 2);
  EXPECT_LT(naive2.trough, ledger2.trough);
}

TEST(ClipDelay, DoesNotMatterAtTheBoundaryThatMeasured) {
  const Range naive = Simulate(Rule::kNaive, 0), ledger = Simulate(Rule::kLedger, 0);
  EXPECT_NEAR(naive.peak, ledger.peak, 1e-3 * ledger.peak);
  EXPECT_NEAR(naive.trough, ledger.trough, 1e-3 * ledger.trough);
}

}  // namespace
}  // namespace gyrostat::remedy
