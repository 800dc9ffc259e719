// The whole loop under growth, noise and delay: does the policy hold the heads, and is every order what protocol.md
// says?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness.h"
#include "support/lcg.h"

namespace gyrostat::policy {
namespace {

using model::Mode;

constexpr double kTau = 30, kNoise = 0.1;
constexpr uint32_t kLayers = 3, kHeads = 4;

struct Result {
  double peak = 0;             // Of the maxima, noise included.
  double trough = HUGE_VAL;    // Of heads that would be above tau, without their noise, once settled.
  size_t pairs = 0, high = 0;  // (head, step) pairs from the first clip on; those above 1.5 tau.
  uint32_t longest_high = 0;   // Most boundaries in a row that a head stood there.
};

struct Case {
  model::Boundary delay = 1;
  double growth = 0.05;
  double lost = 0;  // Share of orders that never arrive.
  uint64_t seed = 1;
};

// Half of the heads grow; each order is checked against the report it answers as it leaves.
class Simulation {
 public:
  Simulation(const Case& c, const PolicyOptions& options, const model::ModelSpec& spec)
      : case_(c),
        random_(c.seed),
        loop_(options, spec),
        start_(spec.layers, spec.heads),
        streaks_(kLayers * kHeads, 0) {
    loop_.client.delay = c.delay;
    loop_.SayHello();
  }

  Result Run(int steps) {
    for (int step = 0; step < steps; ++step) {
      std::vector<double> sizes, quiet;
      for (uint32_t i = 0; i < kLayers * kHeads; ++i) {
        const double log_size = std::log(8.0 + i) + (i % 2 == 0 ? case_.growth * step : 0);
        quiet.push_back(std::exp(log_size));
        sizes.push_back(std::exp(log_size + kNoise * random_.Normal()));
      }
      loop_.delivers = random_.Uniform() >= case_.lost;
      const model::Report report = loop_.client.Forward(sizes);
      Measure(report, quiet, step);
      loop_.Report(report);
      for (const model::Order& order : loop_.last.orders) ExpectRightOrder(order, report);
      for (const model::Ack& ack : loop_.client.Boundary()) loop_.Ack(ack);
    }
    return result_;
  }

  Loop& loop() { return loop_; }

  // The acks alone, replayed on an empty ledger by the rule of protocol.md §1.4, give the client's ledger to the tick.
  void ExpectReplay() {
    std::map<model::OrderId, model::Order> orders;
    for (const model::Order& order : loop_.all.orders) orders[order.id] = order;
    const remedy::ClipShape shape = *remedy::ShapeFor(loop_.client.hello.model, model::ClipVariant::kGroupMin, &why_);
    remedy::ClipLedger replay = start_;
    for (const model::Ack& ack : loop_.acks) {
      if (ack.outcome != model::AckOutcome::kApplied) continue;
      remedy::ClipPlan plan;
      remedy::PlanClip(shape, orders.at(ack.order_id).entries, replay, &plan);
      EXPECT_EQ(plan.charged, ack.applied);
      EXPECT_TRUE(replay.Apply(plan.charged));
      EXPECT_EQ(replay.version(), ack.ledger_version_after);
    }
    EXPECT_EQ(replay.Sparse(), loop_.client.ledger().Sparse());
    EXPECT_EQ(loop_.policy.ledger().Sparse(), loop_.client.ledger().Sparse());
    EXPECT_EQ(loop_.policy.ledger().version(), loop_.client.ledger().version());
  }

 private:
  void Measure(const model::Report& report, const std::vector<double>& quiet, int step) {
    const auto maxima = report.Array(model::Signal::kAttnLogitMax);
    const bool clipped = report.ledger_version > 0;
    for (size_t i = 0; i < maxima.size(); ++i) {
      result_.peak = std::max(result_.peak, double{maxima[i]});
      const auto layer = static_cast<uint32_t>(i) / kHeads, head = static_cast<uint32_t>(i) % kHeads;
      const remedy::Ticks lambda = loop_.client.ledger().At(layer, head);
      if (step > 200 && lambda > 0 && i % 2 == 0)
        result_.trough = std::min(result_.trough, quiet[i] * remedy::ExpMinus(lambda));
      if (!clipped) continue;
      ++result_.pairs;
      streaks_[i] = maxima[i] > 1.5 * kTau ? streaks_[i] + 1 : 0;
      result_.high += streaks_[i] > 0;
      result_.longest_high = std::max(result_.longest_high, streaks_[i]);
    }
  }

  // No head is clipped twice for one measurement: a target is the basis' own ledger plus what that basis shows.
  void ExpectRightOrder(const model::Order& order, const model::Report& report) {
    EXPECT_EQ(order.basis, report.boundary);
    EXPECT_GT(order.expires_boundary, report.boundary);
    EXPECT_LE(order.expires_boundary, report.boundary + 64);
    const auto maxima = report.Array(model::Signal::kAttnLogitMax);
    for (const model::ClipEntry& entry : order.entries) {
      const float max = maxima[size_t{entry.layer} * kHeads + entry.head];
      EXPECT_GT(max, kTau);
      EXPECT_EQ(entry.reported_max, max);
      const auto lambda = loop_.client.ledger().At(report.ledger_version, entry.layer, entry.head);
      ASSERT_TRUE(lambda);
      EXPECT_EQ(entry.target_ticks, remedy::ClipTarget(max, kTau, *lambda));
    }
  }

  Case case_;
  testing::Lcg random_;
  Loop loop_;
  remedy::ClipLedger start_;
  std::vector<uint32_t> streaks_;
  Result result_;
  std::string why_;
};

// tau times the growth until a clip takes effect, times the noise of the few largest of some thousand draws. Beyond 16
// boundaries the first orders expire, which is how the policy learns how long the loop is: twice the delay, once.
double PeakBound(const Case& c) {
  const auto delay = static_cast<double>(c.delay > 16 ? 2 * c.delay : c.delay);
  return kTau * std::exp(c.growth * (delay + 1)) * std::exp(5 * kNoise);
}

TEST(ClosedLoop, HoldsEveryHeadAtEveryDelay) {
  for (const model::Boundary delay : {0u, 1u, 2u, 5u, 10u, 20u})
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const Case c{.delay = delay, .growth = 0.05, .seed = seed};
      Simulation simulation(c, Options(Mode::kAct, kTau), testing::ClipModel(kLayers, kHeads));
      const Result result = simulation.Run(500);
      EXPECT_LT(result.peak, PeakBound(c)) << "delay " << delay << ", seed " << seed;
      EXPECT_GT(result.trough, kTau * std::exp(-5 * kNoise)) << "delay " << delay << ", seed " << seed;
      simulation.ExpectReplay();
      for (const model::Ack& ack : simulation.loop().acks)
        EXPECT_TRUE(ack.outcome == model::AckOutcome::kApplied || ack.outcome == model::AckOutcome::kVoid ||
                    ack.outcome == model::AckOutcome::kExpired)
            << ack.reason;
    }
}

TEST(ClosedLoop, MeetsTheDemonstrationsBoundsAtTheDelayOfOneRank) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Simulation simulation({.delay = 1, .growth = 0.05, .seed = seed}, Options(Mode::kAct, kTau),
                          testing::ClipModel(kLayers, kHeads));
    const Result result = simulation.Run(500);
    EXPECT_LE(result.peak, 2.5 * kTau) << "seed " << seed;
    EXPECT_LE(static_cast<double>(result.high), 0.01 * static_cast<double>(result.pairs)) << "seed " << seed;
    EXPECT_LE(result.longest_high, 3u) << "seed " << seed;
    const model::Intervention intent = simulation.loop().Intent(1);
    EXPECT_EQ(intent.outcome, model::Outcome::kEffective);
    EXPECT_EQ(intent.median_delay_boundaries, 1);
    EXPECT_TRUE(simulation.loop().Intent(2).id.empty()) << "one pull, one intent";
  }
}

TEST(ClosedLoop, LosesNothingButTimeWhenOrdersGetLost) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const Case c{.delay = 2, .growth = 0.03, .lost = 0.3, .seed = seed};
    Simulation simulation(c, Options(Mode::kAct, kTau), testing::ClipModel(kLayers, kHeads));
    const Result result = simulation.Run(500);
    EXPECT_LT(result.peak, 3 * kTau) << "seed " << seed;
    EXPECT_GT(result.trough, kTau * std::exp(-5 * kNoise)) << "seed " << seed;
    simulation.ExpectReplay();
  }
}

TEST(ClosedLoop, HoldsGroupedHeadsAndChargesTheirMates) {
  model::ModelSpec spec = testing::ClipModel(kLayers, kHeads);
  spec.attention = model::Attention::kGqa;
  spec.kv_heads = 2;
  for (const model::ClipVariant variant : {model::ClipVariant::kGroupMin, model::ClipVariant::kQOnly}) {
    PolicyOptions options = Options(Mode::kAct, kTau);
    options.qk_clip.variant = variant;
    const Case c{.delay = 2, .growth = 0.05, .seed = 4};
    Simulation simulation(c, options, spec);
    EXPECT_LT(simulation.Run(400).peak, PeakBound(c));
    const remedy::ClipLedger& ledger = simulation.loop().policy.ledger();
    EXPECT_EQ(ledger.Sparse(), simulation.loop().client.ledger().Sparse());
    for (uint32_t layer = 0; layer < kLayers; ++layer)
      for (uint32_t head = 0; head < kHeads; head += 2) {
        EXPECT_GT(ledger.At(layer, head), 0);
        if (variant == model::ClipVariant::kGroupMin) {
          EXPECT_EQ(ledger.At(layer, head), ledger.At(layer, head + 1));
        } else {
          EXPECT_EQ(ledger.At(layer, head + 1), 0);
        }
      }
  }
}

TEST(ClosedLoop, NeverClipsAHealthyRun) {
  Simulation simulation({.delay = 2, .growth = 0, .seed = 9}, Options(Mode::kAct, kTau),
                        testing::ClipModel(kLayers, kHeads));
  simulation.Run(500);
  EXPECT_TRUE(simulation.loop().all.orders.empty());
  EXPECT_TRUE(simulation.loop().all.decisions.empty());
}

}  // namespace
}  // namespace gyrostat::policy
