#include "remedy/warmup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/archive.h"

namespace gyrostat::remedy {
namespace {

using model::ScheduleKind;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Schedule Cosine() { return {ScheduleKind::kCosine, 1e-3, 1000, 20000}; }

// A job that takes its steps one after another: boundary b runs step b - start + first.
class Job {
 public:
  explicit Job(Schedule schedule, uint64_t step = 0, model::Boundary boundary = 0)
      : schedule_(schedule), step_(step), boundary_(boundary) {}

  double base() const { return BaseRate(schedule_, step_); }
  double rate() const { return envelope.Rate(base(), boundary_); }
  uint64_t step() const { return step_; }
  void To(uint64_t step) {
    while (step_ < step) {
      envelope.Advance(base(), boundary_);
      ++step_;
      ++boundary_;
    }
  }
  std::string Extend(std::optional<uint64_t> end = {}, NotchOptions notch = {}) {
    std::string why;
    const auto extension = PlanWarmup({.schedule = schedule_, .step = step_, .boundary = boundary_,
                                       .effective_rate = rate(), .end = end, .notch = notch},
                                      envelope, &why);
    EXPECT_EQ(extension.has_value(), why.empty());
    EXPECT_TRUE(!extension || envelope.Add(*extension, envelope.version()));
    return why;
  }

  LrEnvelope envelope;

 private:
  Schedule schedule_;
  uint64_t step_;
  model::Boundary boundary_;
};

TEST(Warmup, IsTheStretchedLineOfMethodsSection7) {
  Job job(Cosine(), 299, 40);
  EXPECT_DOUBLE_EQ(job.rate(), 2.99e-4);
  job.To(300);
  ASSERT_EQ(job.Extend(2000), "");
  const std::pair<uint64_t, double> vector[] = {{300, 1.489771e-4},  {301, 1.494737e-4},  {1000, 4.965903e-4},
                                                {1150, 5.710789e-4}, {1999, 9.926841e-4}, {2000, 9.931807e-4}};
  for (const auto& [step, rate] : vector) {
    job.To(step);
    EXPECT_NEAR(job.rate(), rate, 0.6e-10) << step;
  }
  EXPECT_EQ(job.rate(), job.base());
  job.To(2001);
  EXPECT_EQ(job.rate(), job.base());
  EXPECT_TRUE(job.envelope.idle()) << "it ended at W', where the cap met the base";
}

TEST(Warmup, NeverPassesTheBaseNorRisesFasterThanTheDeclaredWarmup) {
  for (const ScheduleKind kind : {ScheduleKind::kConst, ScheduleKind::kLinear, ScheduleKind::kCosine,
                                  ScheduleKind::kWsd, ScheduleKind::kNoam, ScheduleKind::kUnknown})
    for (const uint64_t at : {1, 30, 59, 60, 200, 450})
      for (const uint64_t end : {uint64_t{0}, at + 61, at + 100}) {
        const Schedule schedule{kind, 1e-2, 60, 600};
        Job job(schedule);
        double last = 0;
        for (uint64_t step = 0; step < 600; ++step) {
          job.To(step);
          if (step == at && end != 0) job.Extend(end);
          if (step == at && end == 0) job.Extend();
          EXPECT_LE(job.rate(), job.base());
          EXPECT_LE(job.rate() - last, 1e-2 / 60 * (1 + 1e-9)) << model::Token(kind) << " " << at << " " << step;
          if (job.envelope.idle()) {
            EXPECT_EQ(job.rate(), job.base());
          }
          last = job.rate();
        }
      }
}

TEST(Warmup, DropsAtOnceAndMeetsEverySchedule) {
  for (const ScheduleKind kind :
       {ScheduleKind::kConst, ScheduleKind::kLinear, ScheduleKind::kCosine, ScheduleKind::kWsd, ScheduleKind::kNoam}) {
    Job job({kind, 1, 100, 2000});
    job.To(50);
    ASSERT_EQ(job.Extend(), "") << "W' = 7 W";
    const double top = BaseRate({kind, 1, 100, 2000}, 700);
    EXPECT_NEAR(job.rate(), top * 50 / 700, 1e-12);
    job.To(699);
    EXPECT_LT(job.rate(), job.base());
    EXPECT_FALSE(job.envelope.idle());
    job.To(700);
    EXPECT_EQ(job.rate(), job.base());
    job.To(701);
    EXPECT_EQ(job.rate(), job.base());
    EXPECT_TRUE(job.envelope.idle());
  }
}

TEST(Warmup, BeginsWhereAScheduleOfTheUsersOwnReallyIs) {
  // Declared linear to 1 in 100, but the job is at 0.02 at step 50: the ray begins there, not above.
  std::string why;
  const auto extension = PlanWarmup(
      {.schedule = {ScheduleKind::kUnknown, 1, 100, 0}, .step = 50, .boundary = 7, .effective_rate = 0.02}, {}, &why);
  ASSERT_TRUE(extension) << why;
  EXPECT_EQ(extension->ray.rate, 0.02);
  EXPECT_NEAR(extension->ray.Cap(657), 1, 1e-12);
}

TEST(Warmup, RepeatsTakeTheLowestOfAllRays) {
  Job job({ScheduleKind::kConst, 1, 100, 0});
  job.To(40);
  ASSERT_EQ(job.Extend(300), "");
  EXPECT_EQ(job.Extend(300), "the warm-up is stretched to step 300 already, wanted an end after it, not step 300");
  job.To(150);
  EXPECT_NEAR(job.rate(), 0.5, 1e-12);
  ASSERT_EQ(job.Extend(750), "");
  EXPECT_NEAR(job.rate(), 150.0 / 750, 1e-12) << "it drops again";
  EXPECT_EQ(job.envelope.rays().size(), 2u);
  EXPECT_EQ(job.envelope.version(), 2u);
  job.To(302);
  EXPECT_EQ(job.envelope.rays().size(), 1u) << "the first has ended";
  EXPECT_NEAR(job.rate(), 302.0 / 750, 1e-12);
  EXPECT_EQ(job.Extend(801), "the new end of the warm-up is step 801, wanted at most 800, 8 times the declared one");
}

TEST(Warmup, RefusesWhatIsOutOfBoundsAndNeverClamps) {
  Job job({ScheduleKind::kConst, 1, 100, 700});
  job.To(50);
  EXPECT_EQ(job.Extend(700), "the new end of the warm-up is step 700, wanted one before the run's last, 700");
  EXPECT_EQ(job.Extend(100), "the new end of the warm-up is step 100, wanted one after step 100");
  EXPECT_EQ(job.Extend(), "") << "the default keeps one step of the run: W' = 699";
  EXPECT_EQ(*job.envelope.WarmingUntil(), 699u);

  std::string why;
  const auto refusal = [&](Schedule schedule, double rate = 0.5) {
    EXPECT_FALSE(PlanWarmup({.schedule = schedule, .step = 50, .effective_rate = rate}, {}, &why));
    return why;
  };
  EXPECT_EQ(refusal({ScheduleKind::kConst, 1, 0, 700}), "the schedule has no warm-up to extend");
  EXPECT_EQ(refusal({ScheduleKind::kCosine, 1, 100, 0}),
            "the total number of steps is not known, which a cosine schedule needs");
  EXPECT_EQ(refusal({ScheduleKind::kConst, 1, 100, 100}),
            "the warm-up of 100 steps does not end before the run's 100");
  for (const double bad : {kNan, kInfinity, -1.0, 0.0}) EXPECT_NE(refusal({ScheduleKind::kConst, bad, 100, 700}), "");
  for (const double bad : {kNan, kInfinity, -1.0}) EXPECT_NE(refusal({ScheduleKind::kConst, 1, 100, 700}, bad), "");
}

TEST(Notch, FallsAndRisesAgainAfterTheWarmup) {
  Job job({ScheduleKind::kConst, 1, 1000, 0});
  job.To(4000);
  ASSERT_EQ(job.Extend(), "");
  EXPECT_EQ(job.rate(), 1);
  job.To(4025);
  EXPECT_NEAR(job.rate(), 1 - 0.7 * 25 / 50, 1e-12);
  job.To(4050);
  EXPECT_NEAR(job.rate(), 0.3, 1e-12);
  job.To(4051);
  EXPECT_NEAR(job.rate(), 0.3 + 0.7 / 950, 1e-12);
  job.To(4999);
  EXPECT_LT(job.rate(), 1);
  job.To(5001);
  EXPECT_EQ(job.rate(), 1);
  EXPECT_TRUE(job.envelope.idle());
}

TEST(Notch, KeepsItsRiseNoSteeperThanTheWarmup) {
  Job job({ScheduleKind::kConst, 1, 100, 0});
  job.To(500);
  EXPECT_EQ(job.Extend(569), "the notch has 69 steps, wanted at least 70 to rise no steeper than the declared warm-up");
  ASSERT_EQ(job.Extend(570), "") << "no room to fall: it drops at once";
  EXPECT_NEAR(job.rate(), 0.3, 1e-12);
  job.To(501);
  EXPECT_NEAR(job.rate(), 0.31, 1e-12);
}

TEST(Notch, IsRefusedWhereTheScheduleHasFallenTooFar) {
  Job job({ScheduleKind::kLinear, 1, 100, 1000});
  job.To(890);
  EXPECT_EQ(job.Extend(990), "the schedule falls below the notch by step 990: there is nothing to warm up to");
  EXPECT_EQ(job.Extend(1000), "the notch ends at step 1000, wanted one before the run's last, 1000");
  EXPECT_NE(job.Extend(950, {.floor = 0}).find("wanted a factor between 0 and 1"), std::string::npos);
}

TEST(LrEnvelope, MultipliesByTheReferenceGroupsRatio) {
  LrEnvelope envelope;
  ASSERT_TRUE(envelope.Add({.ray = {10, 0.25, 0.01, 50}}, 0));
  EXPECT_EQ(envelope.Multiplier(1, 9), 1);
  EXPECT_EQ(envelope.Multiplier(1, 10), 0.25);
  EXPECT_EQ(envelope.Multiplier(0.5, 10), 0.5);
  EXPECT_EQ(envelope.Multiplier(0.1, 10), 1) << "a cap above the base does nothing";
  for (const double odd : {0.0, -1.0, kNan, kInfinity, -kInfinity}) EXPECT_EQ(envelope.Multiplier(odd, 10), 1) << odd;
}

TEST(LrEnvelope, ScaleComesAfterTheRaysAndEndsAtItsBoundary) {
  LrEnvelope envelope;
  ASSERT_TRUE(envelope.Add({.ray = {0, 0.5, 0, 100}}, 0));
  ASSERT_TRUE(envelope.Scale(0.3, 20, 1));
  EXPECT_NEAR(envelope.Rate(1, 20), 0.15, 1e-15);
  EXPECT_NEAR(envelope.Rate(1, 21), 0.5, 1e-15);
  EXPECT_TRUE(envelope.Advance(1, 20));
  EXPECT_NEAR(envelope.Rate(1, 5), 0.5, 1e-15);
  for (const double bad : {0.0, -1.0, 1.5, kNan}) EXPECT_FALSE(envelope.Scale(bad, 0, 2)) << bad;
}

TEST(LrEnvelope, AScaleIsNotCountedTwiceInARay) {
  LrEnvelope envelope;
  ASSERT_TRUE(envelope.Scale(0.25, 0, 0));
  std::string why;
  const Schedule schedule{ScheduleKind::kConst, 1, 100, 0};
  const auto extension =
      PlanWarmup({.schedule = schedule, .step = 50, .effective_rate = 0.125, .end = 200}, envelope, &why);
  ASSERT_TRUE(extension) << why;
  EXPECT_EQ(extension->ray.rate, 0.25) << "the stretched line, which the scale then quarters";
}

TEST(LrEnvelope, WritesAreVoidUnlessTheyExpectItsVersion) {
  LrEnvelope envelope;
  const WarmupExtension extension{.ray = {0, 0.5, 0, 10}};
  EXPECT_FALSE(envelope.Add(extension, 1));
  EXPECT_TRUE(envelope.Add(extension, 0));
  EXPECT_FALSE(envelope.Add(extension, 0)) << "delivered twice";
  EXPECT_EQ(envelope.rays().size(), 1u);
  EXPECT_FALSE(envelope.Scale(0.5, 0, 0));
  for (uint64_t i = 1; i < LrEnvelope::kRaysMax; ++i) EXPECT_TRUE(envelope.Add(extension, i));
  EXPECT_FALSE(envelope.Add(extension, LrEnvelope::kRaysMax));
}

TEST(LrEnvelope, DoesNotEndWhileItsCapIsBelowABaseThatWasDeclaredWrongly) {
  LrEnvelope envelope;
  ASSERT_TRUE(envelope.Add({.ray = {0, 0.1, 0.01, 10}}, 0));
  EXPECT_FALSE(envelope.Advance(1, 10));
  EXPECT_NEAR(envelope.Rate(1, 11), 0.21, 1e-12) << "no jump up";
  EXPECT_TRUE(envelope.Advance(1, 91));
  EXPECT_TRUE(envelope.idle());
}

TEST(LrEnvelope, ComesBackFromACheckpointAndMovesToAnotherCount) {
  LrEnvelope envelope;
  ASSERT_TRUE(envelope.Add({.ray = {60, 0.3, 0.001, 800}, .fall = Fall{10, 50, 0.3}}, 0));
  ASSERT_TRUE(envelope.Scale(0.5, 90, 1));
  base::ByteWriter out;
  base::SaveTo(&out, envelope);
  LrEnvelope back;
  base::ByteReader in(out.bytes());
  ASSERT_TRUE(base::LoadFrom(&in, &back));
  for (model::Boundary at = 0; at < 900; ++at) EXPECT_EQ(back.Rate(1, at), envelope.Rate(1, at));
  EXPECT_EQ(back.version(), 2u);

  const Ray ray{100, 0.3, 0.001, 800};
  const Ray later = ray.Shifted(50), earlier = ray.Shifted(-40), before = ray.Shifted(-300);
  for (model::Boundary at = 400; at < 700; ++at) {
    EXPECT_EQ(later.Cap(at + 50), ray.Cap(at));
    EXPECT_EQ(earlier.Cap(at - 40), ray.Cap(at));
    EXPECT_NEAR(before.Cap(at - 300), ray.Cap(at), 1e-15);
  }
  EXPECT_EQ(before, (Ray{0, ray.Cap(300), 0.001, 500}));
}

TEST(LrEnvelope, RefusesAStateThatCannotBe) {
  const auto loads = [](Ray ray) {
    LrEnvelope envelope;
    EXPECT_TRUE(envelope.Add({.ray = ray}, 0));
    base::ByteWriter out;
    base::SaveTo(&out, envelope);
    LrEnvelope back;
    base::ByteReader in(out.bytes());
    return base::LoadFrom(&in, &back);
  };
  EXPECT_TRUE(loads({0, 0.1, 0, 1}));
  EXPECT_FALSE(loads({0, kNan, 0, 1}));
  EXPECT_FALSE(loads({0, -1, 0, 1}));
  EXPECT_FALSE(loads({0, 0.1, kInfinity, 1}));
  EXPECT_FALSE(loads({5, 0.1, 0, 5}));
}

TEST(CheckExtension, JudgesWhatAnOrderBrings) {
  const WarmupExtension good{.ray = {10, 0.1, 0.005, 300}};
  EXPECT_EQ(CheckExtension(good, 1, 100), "");
  const auto with = [&](auto change) {
    WarmupExtension odd = good;
    change(&odd);
    return CheckExtension(odd, 1, 100);
  };
  for (const double bad : {kNan, kInfinity, -0.1, 1.1}) EXPECT_NE(with([&](auto* e) { e->ray.rate = bad; }), "");
  for (const double bad : {kNan, kInfinity, -0.1, 0.0101}) EXPECT_NE(with([&](auto* e) { e->ray.slope = bad; }), "");
  EXPECT_NE(with([](auto* e) { e->ray.until = 10; }), "");
  EXPECT_NE(with([](auto* e) { e->ray.until = 811; }), "");
  EXPECT_NE(with([](auto* e) { e->fall = Fall{0, 9, 0.3}; }), "");
  EXPECT_EQ(with([](auto* e) { e->fall = Fall{0, 10, 0.3}; }), "");
  EXPECT_NE(with([](auto* e) { e->fall = Fall{0, 10, 0}; }), "");
  EXPECT_NE(with([](auto* e) { e->fall = Fall{400, 10, 0.5}; }), "");
  EXPECT_NE(CheckExtension(good, 1, 0), "");
}

TEST(LrEnvelope, GoesOnInAnAttemptThatCountsOtherwise) {
  const WarmupExtension notch{.ray = {.boundary = 150, .rate = 3e-4, .slope = 1e-6, .until = 700},
                              .fall = Fall{.boundary = 100, .length = 50, .floor = 0.3}};
  for (const int64_t shift : {-160, -120, -50, 0, 30}) {
    LrEnvelope before, after;
    ASSERT_TRUE(before.Add(notch, 0));
    ASSERT_TRUE(before.Scale(0.5, 170, 1));
    after = before;
    after.Shift(shift);
    EXPECT_EQ(after.hash() == before.hash(), shift == 0);
    for (model::Boundary b = 165; b < 800; ++b) {
      const auto there = static_cast<model::Boundary>(static_cast<int64_t>(b) + shift);
      EXPECT_NEAR(after.Rate(1e-3, there), before.Rate(1e-3, b), 1e-15) << shift << " " << b;
    }
  }
  // In the middle of the fall.
  LrEnvelope before, after;
  ASSERT_TRUE(before.Add(notch, 0));
  after = before;
  after.Shift(-120);
  for (model::Boundary b = 120; b < 160; ++b) EXPECT_NEAR(after.Rate(1e-3, b - 120), before.Rate(1e-3, b), 1e-15) << b;
  EXPECT_TRUE(after.Advance(1e-3, 30));
}

TEST(LrEnvelope, AScaleThatIsOverIsOver) {
  LrEnvelope envelope;
  ASSERT_TRUE(envelope.Scale(0.5, 40, 0));
  envelope.Shift(-50);
  EXPECT_EQ(envelope.Rate(1, 0), 1);
  EXPECT_TRUE(envelope.idle());
}

}  // namespace
}  // namespace gyrostat::remedy
