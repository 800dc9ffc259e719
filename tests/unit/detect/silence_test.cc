#include "detect/silence.h"

#include <gtest/gtest.h>

namespace gyrostat::detect {
namespace {

// Reports every `interval_ms`, and returns the time of the last.
int64_t Beat(Silence* silence, int64_t from_ms, int64_t interval_ms, int times, model::Step* step) {
  for (int i = 0; i < times; ++i) EXPECT_FALSE(silence->OnReport((*step)++, from_ms += interval_ms));
  return from_ms;
}

TEST(Silence, SaysItOnceAfterKMedianSteps) {
  Silence silence(SilenceOptions{});
  model::Step step = 0;
  const int64_t last = Beat(&silence, 0, 5000, 50, &step);
  EXPECT_EQ(silence.SilentAfterMs(), 100000);
  EXPECT_FALSE(silence.OnTick(last + 100000));
  const auto finding = silence.OnTick(last + 100001);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->step_begin, 49);
  EXPECT_EQ(finding->severity, model::Severity::kWarning);
  EXPECT_DOUBLE_EQ(finding->expected, 100);
  EXPECT_TRUE(silence.silent());
  EXPECT_FALSE(silence.OnTick(last + 200000));
}

TEST(Silence, IsNeverShorterThanItsMinimumNorLongerThanItsMaximum) {
  model::Step step = 0;
  Silence fast(SilenceOptions{}), slow(SilenceOptions{});
  Beat(&fast, 0, 10, 50, &step);
  EXPECT_EQ(fast.SilentAfterMs(), 30000);
  Beat(&slow, 0, 600000, 50, &step);
  EXPECT_EQ(slow.SilentAfterMs(), 3600000);
}

TEST(Silence, EndsWithTheNextReport) {
  Silence silence(SilenceOptions{});
  model::Step step = 0;
  const int64_t last = Beat(&silence, 0, 1000, 20, &step);
  const auto begun = silence.OnTick(last + 40000);
  ASSERT_TRUE(begun);
  const auto ended = silence.OnReport(20, last + 60000);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->key, begun->key);
  EXPECT_EQ(ended->step_end, 20);
  EXPECT_EQ(ended->healed, true);
  EXPECT_DOUBLE_EQ(ended->value, 60);
  EXPECT_FALSE(silence.silent());
  EXPECT_EQ(silence.SilentAfterMs(), 30000);  // The silence itself is no step time.
}

TEST(Silence, AGoodByeIsNotSilence) {
  Silence silence(SilenceOptions{});
  model::Step step = 0;
  const int64_t last = Beat(&silence, 0, 1000, 20, &step);
  EXPECT_FALSE(silence.OnBye(last + 1));
  EXPECT_FALSE(silence.OnTick(last + 10000000));
  EXPECT_FALSE(silence.OnReport(20, last + 20000000));
  EXPECT_TRUE(silence.OnTick(last + 20000000 + 60000));
  EXPECT_TRUE(silence.OnBye(last + 30000000));
}

TEST(Silence, NeverSaysItBeforeTheFirstReport) {
  Silence silence(SilenceOptions{});
  EXPECT_FALSE(silence.OnTick(1000000000));
}

TEST(Silence, WaitsLongWhileItKnowsLittle) {
  Silence silence(SilenceOptions{});
  EXPECT_FALSE(silence.OnReport(0, 0));
  EXPECT_EQ(silence.SilentAfterMs(), 3600000);
  EXPECT_FALSE(silence.OnReport(1, 90000));  // The first step compiled.
  EXPECT_FALSE(silence.OnReport(2, 91000));
  EXPECT_EQ(silence.SilentAfterMs(), 1800000);
}

TEST(Silence, ABurstOfHeldBackReportsIsNotAFasterJob) {
  Silence silence(SilenceOptions{});
  model::Step step = 0;
  int64_t now = Beat(&silence, 0, 60000, 50, &step);
  now = Beat(&silence, now + 600000, 1, 500, &step);
  EXPECT_EQ(silence.SilentAfterMs(), 1200000);
  now = Beat(&silence, now, 1000, 5000, &step);  // So many are a faster job.
  EXPECT_EQ(silence.SilentAfterMs(), 30000);
}

TEST(Silence, IsNotBlindedByOneLongStepAGoodByeOrAResume) {
  for (const int64_t long_ms : {int64_t{5000}, int64_t{50'000}, int64_t{0}}) {
    for (const bool good_bye : {false, true}) {
      Silence silence(SilenceOptions{});
      model::Step step = 0;
      int64_t now = Beat(&silence, 0, 5000, 50, &step);
      now = Beat(&silence, now, long_ms, 1, &step);
      if (good_bye) {
        EXPECT_FALSE(silence.OnBye(now + 1));
      }
      now = Beat(&silence, now, 5000, 2, &step);
      EXPECT_FALSE(silence.OnTick(now + 100'000)) << long_ms;
      EXPECT_TRUE(silence.OnTick(now + 100'001)) << long_ms;
    }
  }
}

TEST(Silence, GoesOnAfterSaveAndLoad) {
  Silence silence(SilenceOptions{});
  model::Step step = 0;
  const int64_t last = Beat(&silence, 0, 1000, 100, &step);
  const auto begun = silence.OnTick(last + 40000);
  base::ByteWriter out;
  base::SaveTo(&out, silence);
  Silence other{SilenceOptions{}};
  base::ByteReader in(out.bytes());
  ASSERT_TRUE(base::LoadFrom(&in, &other));
  EXPECT_FALSE(other.OnTick(last + 50000));
  EXPECT_EQ(other.OnReport(100, last + 60000)->key, begun->key);
}

}  // namespace
}  // namespace gyrostat::detect
