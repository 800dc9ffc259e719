#include "detect/discontinuity.h"

#include <gtest/gtest.h>

#include <limits>

#include "detect/spike.h"
#include "unit/detect/feed.h"

namespace gyrostat::detect {
namespace {

using model::Signal;

bool Rate(Discontinuity* seen, double rate) {
  model::Report report;
  report.SetScalar(Signal::kLearningRate, rate);
  return seen->Observe(report);
}

TEST(Discontinuity, ACutOfTheRateIsOneAndAWarmUpOrADecayIsNone) {
  Discontinuity seen;
  for (int i = 1; i <= 200; ++i) EXPECT_FALSE(Rate(&seen, 1e-5 * i)) << i;  // The second step doubles it.
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(Rate(&seen, 2e-3 - 1e-5 * i)) << i;
  seen.Clear();
  for (int i = 0; i < 40; ++i) EXPECT_FALSE(Rate(&seen, 1e-3)) << i;
  EXPECT_TRUE(Rate(&seen, 3e-4));
  EXPECT_FALSE(Rate(&seen, 3e-4));
}

TEST(Discontinuity, JustBelowTheRatioIsNone) {
  for (const double times : {1.49, 1.51}) {
    Discontinuity seen;
    for (int i = 0; i < 60; ++i) Rate(&seen, 1e-3);
    EXPECT_EQ(Rate(&seen, 1e-3 * times), times > 1.5);
  }
}

TEST(Discontinuity, ARateThatFlickersIsOneOnlyOnce) {
  Discontinuity seen;
  for (int i = 0; i < 60; ++i) Rate(&seen, 1e-3);
  int jumps = 0;
  for (int i = 0; i < 300; ++i) jumps += Rate(&seen, i % 2 == 0 ? 1e-4 : 1e-3) ? 1 : 0;
  EXPECT_EQ(jumps, 1);
}

TEST(Discontinuity, WhatIsNoRateIsPassedOver) {
  Discontinuity seen;
  for (int i = 0; i < 60; ++i) Rate(&seen, 1e-3);
  for (const double bad : {kNan, kInf, -kInf, 0.0, -1.0, static_cast<double>(model::kAbsent)}) {
    EXPECT_FALSE(Rate(&seen, bad)) << bad;
    EXPECT_FALSE(Rate(&seen, 1e-3)) << bad;
  }
  EXPECT_TRUE(Rate(&seen, 1e-4));
}

TEST(Discontinuity, TokensOfAStepCountToo) {
  Discontinuity seen;
  model::Report report;
  report.user = {{"tokens", 4096.0}, {"other", 1.0}};
  for (int i = 0; i < 60; ++i) EXPECT_FALSE(seen.Observe(report));
  report.user[1].second = 100;
  EXPECT_FALSE(seen.Observe(report));
  report.user[0].second = 16384;
  EXPECT_TRUE(seen.Observe(report));
}

// A cut of the rate halves the gradient noise: by the old scale alone nothing after it would be a spike.
TEST(Discontinuity, SpikesAreJudgedByTheLevelAfterIt) {
  for (const bool told : {false, true}) {
    Feed feed(std::make_unique<Spike>(LossSpikeDefaults()));
    for (int i = 0; i < 400; ++i)
      feed.Give([&](model::Report* r) {
        r->SetScalar(Signal::kLoss, (i < 200 ? 3 + 0.2 * (i % 5 - 2) : 2 + 0.01 * (i % 5 - 2)) + (i == 300 ? 0.5 : 0));
        r->SetScalar(Signal::kLearningRate, told && i >= 200 ? 1e-4 : 1e-3);
      });
    EXPECT_EQ(feed.said.empty(), !told);
  }
}

// One step at thirty times the rate, and the loss it costs: the level of before judges it.
TEST(Discontinuity, ASpikeAfterAGlitchOfTheRateIsSeen) {
  for (const int steps : {1, 5, 40}) {
    Feed feed(std::make_unique<Spike>(LossSpikeDefaults()));
    for (int i = 0; i < 260; ++i)
      feed.Give([&](model::Report* r) {
        r->SetScalar(Signal::kLoss, 2.8 + 0.02 * (i % 5) + (i >= 200 + steps && i < 206 + steps ? 1 : 0));
        r->SetScalar(Signal::kLearningRate, i >= 200 && i < 200 + steps ? 0.09 : 0.003);
      });
    // After 40 steps it was no glitch.
    EXPECT_EQ(feed.said.empty(), steps == 40) << steps;
  }
}

}  // namespace
}  // namespace gyrostat::detect
