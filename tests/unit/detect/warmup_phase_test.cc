#include "detect/warmup_phase.h"

#include <gtest/gtest.h>

#include "unit/detect/feed.h"

namespace gyrostat::detect {
namespace {

using Phase = WarmupPhase::Phase;

Phase At(WarmupPhase* phase, model::Step step, double rate) {
  model::Report report;
  report.step = step;
  if (rate >= 0) report.SetScalar(model::Signal::kLearningRate, rate);
  return phase->Observe(report);
}

TEST(WarmupPhase, KnowsNothingWithoutDeclarationAndRate) {
  WarmupPhase phase{model::ModelSpec()};
  EXPECT_EQ(At(&phase, 0, -1), Phase::kUnknown);
}

TEST(WarmupPhase, TheRateItselfShows) {
  WarmupPhase phase{model::ModelSpec()};
  EXPECT_EQ(At(&phase, 0, 0.001), Phase::kOver);  // One rate is no rise.
  for (int step = 1; step < 50; ++step) EXPECT_EQ(At(&phase, step, 0.001 * (step + 1)), Phase::kRising);
  for (int step = 50; step < 57; ++step) EXPECT_EQ(At(&phase, step, 0.05), Phase::kRising);
  EXPECT_EQ(At(&phase, 57, 0.05), Phase::kOver);
  EXPECT_EQ(At(&phase, 58, 0.04), Phase::kOver);  // A decay.
}

TEST(WarmupPhase, AStretchedWarmupGoesOnAfterItsDeclaredEnd) {
  model::ModelSpec spec;
  spec.warmup_steps = 10;
  WarmupPhase phase(spec);
  for (int step = 0; step < 10; ++step) EXPECT_EQ(At(&phase, step, -1), Phase::kRising);
  EXPECT_EQ(At(&phase, 10, -1), Phase::kOver);
  At(&phase, 11, 0.001);
  EXPECT_EQ(At(&phase, 12, 0.002), Phase::kRising);
}

TEST(WarmupPhase, OneStrayRateHidesNoRiseAfterIt) {
  for (const int stray : {0, 5}) {
    WarmupPhase phase{model::ModelSpec()};
    for (int step = 0; step < 20; ++step) At(&phase, step, step == stray ? 1e30 : 0.001);
    EXPECT_EQ(phase.phase(), Phase::kOver);
    EXPECT_EQ(At(&phase, 20, 0.002), Phase::kRising);
  }
}

TEST(WarmupPhase, AnImpossibleRateIsNone) {
  WarmupPhase phase{model::ModelSpec()};
  for (const double rate : {0.0, -1.0, kNan, kInf}) EXPECT_EQ(At(&phase, 0, rate), Phase::kUnknown) << rate;
}

}  // namespace
}  // namespace gyrostat::detect
