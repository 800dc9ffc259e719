#include "stats/spike_score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>

#include "support/lcg.h"

namespace gyrostat::stats {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// The definition, written down once more without any economy: two passes over the window at each step.
class Plain {
 public:
  explicit Plain(SpikeScoreOptions options) : options_(options) {}
  bool Observe(double value) {
    bool spike = !std::isfinite(value);
    if (!spike && window_.size() == options_.window) {
      const long double n = static_cast<long double>(window_.size());
      long double mean = 0, squares = 0;
      for (const double v : window_) mean += v / n;
      for (const double v : window_) squares += (v - mean) * (v - mean) / n;
      const long double distance = options_.upper_only ? value - mean : std::fabs(value - mean);
      spike = squares > 0 && distance >= options_.threshold_stds * std::sqrt(squares);
    }
    if (std::isfinite(value)) window_.push_back(value);
    if (window_.size() > options_.window) window_.pop_front();
    return spike;
  }

 private:
  SpikeScoreOptions options_;
  std::deque<double> window_;
};

SpikeScoreOptions Small(uint32_t window, double stds) {
  SpikeScoreOptions options;
  options.window = window;
  options.threshold_stds = stds;
  return options;
}

// Noise of deviation 1 in a strict order, so that a window's mean and deviation are known.
double Noise(int i) { return i % 2 == 0 ? 1.0 : -1.0; }

std::string Bytes(const SpikeScore& score) {
  base::ByteWriter out;
  base::SaveTo(&out, score);
  return out.Take();
}

TEST(SpikeScore, JudgesNothingBeforeTheWindowIsFull) {
  SpikeScore score(Small(100, 7));
  for (int i = 0; i < 99; ++i) score.Observe(Noise(i));
  EXPECT_FALSE(score.Observe(1e6));
  EXPECT_EQ(score.evaluated(), 0u);
  EXPECT_EQ(score.percent(), 0);
  score.Observe(0);
  EXPECT_EQ(score.evaluated(), 1u);
}

TEST(SpikeScore, FlagsFromTheThresholdOnAndNotBelow) {
  for (const double side : {1.0, -1.0}) {
    SpikeScore below(Small(100, 7)), at(Small(100, 7));
    for (int i = 0; i < 100; ++i) below.Observe(Noise(i)), at.Observe(Noise(i));
    EXPECT_FALSE(below.Observe(side * 6.999999));
    EXPECT_TRUE(at.Observe(side * 7));
  }
}

TEST(SpikeScore, LooksOnlyUpwardsWhereAsked) {
  SpikeScoreOptions options = Small(100, 6);
  options.upper_only = true;
  SpikeScore score(options);
  for (int i = 0; i < 100; ++i) score.Observe(Noise(i));
  EXPECT_FALSE(score.Observe(-50));
}

TEST(SpikeScore, AConstantSeriesHasNoSpike) {
  SpikeScore score(Small(10, 7));
  for (int i = 0; i < 10; ++i) score.Observe(0.1);
  EXPECT_FALSE(score.Observe(100));  // Population std is 0.
}

// k equal spikes in a window of N give a further one z = sqrt((N - k) / k): at 7 sigma it is flagged up to k = N/50.
TEST(SpikeScore, IsBlindToEqualSpikesFromAFiftiethOfTheWindowOn) {
  for (const auto& [k, flagged] : {std::pair{19, true}, std::pair{21, false}}) {
    SpikeScore score;
    for (int i = 0; i < 1000; ++i) score.Observe(i % 50 == 7 && i / 50 < k ? 1e6 : 1e-6 * Noise(i));
    if (k == 21) score.Observe(1e6);  // There are only 20 such places: the 21st comes last.
    EXPECT_EQ(score.Observe(1e6), flagged) << k;
  }
}

// A linear trend of range R has std 0.289 R: 7 sigma are 2.02 R, so a spike on a steep descent is not seen.
TEST(SpikeScore, ALinearTrendHidesWhatIsBelowTwiceItsRange) {
  for (const auto& [height, flagged] : {std::pair{2.00, false}, std::pair{2.05, true}}) {
    SpikeScore score;
    for (int i = 0; i < 1000; ++i) score.Observe(i / 999.0);
    EXPECT_EQ(score.Observe(0.5 + height), flagged) << height;
  }
}

TEST(SpikeScore, CountsNonFiniteValuesButNeverStoresThem) {
  SpikeScore with(Small(100, 7)), without(Small(100, 7));
  for (int i = 0; i < 150; ++i) with.Observe(Noise(i)), without.Observe(Noise(i));
  EXPECT_TRUE(with.Observe(kNan));
  EXPECT_TRUE(with.Observe(kInf));
  EXPECT_TRUE(with.Observe(-kInf));
  EXPECT_EQ(with.spikes(), 3u);
  EXPECT_EQ(with.evaluated(), 53u);
  for (int i = 0; i < 300; ++i) EXPECT_EQ(with.Observe(5 * Noise(i)), without.Observe(5 * Noise(i))) << i;
}

TEST(SpikeScore, OneHugeValueLeavesNoTraceOnceItIsGone) {
  SpikeScore touched(Small(128, 6)), clean(Small(128, 6));
  touched.Observe(1e30);
  for (int i = 0; i < 4000; ++i) {
    const double value = 2 + 0.02 * Noise(i * 7 / 3);
    const bool flagged = touched.Observe(value);
    EXPECT_EQ(clean.Observe(value), flagged);
  }
  EXPECT_TRUE(touched.Observe(2.2));
  EXPECT_TRUE(clean.Observe(2.2));
}

TEST(SpikeScore, AgreesWithTheDefinition) {
  testing::Lcg random(3);
  SpikeScore score(Small(64, 4));
  Plain plain(Small(64, 4));
  int spikes = 0;
  for (int i = 0; i < 5000; ++i) {
    double value = 3 - i * 1e-4 + 0.1 * random.Normal();
    if (random.Below(40) == 0) value += random.Below(20);
    if (random.Below(500) == 0) value = random.Below(2) == 0 ? kNan : -kInf;
    const bool spike = score.Observe(value);
    ASSERT_EQ(spike, plain.Observe(value)) << i;
    spikes += spike ? 1 : 0;
  }
  EXPECT_GT(spikes, 50);
}

TEST(SpikeScore, GoesOnBitForBitAfterSaveAndLoadAtAnyStep) {
  testing::Lcg random(4);
  SpikeScoreOptions options = Small(50, 3);
  options.horizon = 70;
  std::vector<double> values;
  for (int i = 0; i < 260; ++i) values.push_back(i % 31 == 5 ? 40 * random.Uniform() : random.Normal());
  for (size_t cut = 0; cut <= values.size(); ++cut) {
    SpikeScore whole(options), first(options), second(options);
    for (size_t i = 0; i < cut; ++i) whole.Observe(values[i]), first.Observe(values[i]);
    const std::string bytes = Bytes(first);
    base::ByteReader in(bytes);
    ASSERT_TRUE(base::LoadFrom(&in, &second)) << cut;
    for (size_t i = cut; i < values.size(); ++i) {
      ASSERT_EQ(whole.Observe(values[i]), second.Observe(values[i]));
      ASSERT_EQ(whole.percent(), second.percent());
    }
    EXPECT_EQ(Bytes(whole), Bytes(second));
  }
}

TEST(SpikeScore, RefusesStateThatCannotBe) {
  SpikeScore large(Small(50, 3));
  for (int i = 0; i < 60; ++i) large.Observe(i);
  const std::string bytes = Bytes(large);
  SpikeScore small(Small(49, 3));
  base::ByteReader too_long(bytes);
  EXPECT_FALSE(base::LoadFrom(&too_long, &small));
  for (size_t size = 0; size < bytes.size(); ++size) {
    SpikeScore same(Small(50, 3));
    base::ByteReader cut(std::string_view(bytes).substr(0, size));
    EXPECT_FALSE(base::LoadFrom(&cut, &same)) << size;
    same.Observe(1e9);  // Whatever was read, it is safe to use.
  }
}

TEST(SpikeScore, ForgetsBeyondItsHorizon) {
  SpikeScoreOptions options = Small(20, 6);
  options.horizon = 100;
  SpikeScore score(options);
  for (int i = 0; i < 20; ++i) score.Observe(Noise(i));
  score.Observe(100);
  EXPECT_EQ(score.percent(), 100);
  for (int i = 0; i < 99; ++i) score.Observe(Noise(i));
  EXPECT_EQ(score.percent(), 1);
  score.Observe(1);
  EXPECT_EQ(score.percent(), 0);
  EXPECT_EQ(score.spikes(), 1u);
}

TEST(SpikeScore, CanKeepSpikesOutOfItsBaseline) {
  SpikeScoreOptions options = Small(100, 7);
  options.exclude_flagged = true;
  SpikeScore score(options);
  for (int i = 0; i < 100; ++i) score.Observe(Noise(i));
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(score.Observe(1000));
}

TEST(SpikeScore, OlmoCorePresetIsItsMonitor) {
  const SpikeScoreOptions options = OlmoCoreOptions();
  EXPECT_EQ(options.window, 128u);
  EXPECT_EQ(options.threshold_stds, 6);
  EXPECT_TRUE(options.upper_only);
  EXPECT_EQ(options.horizon, 10000u);
}

}  // namespace
}  // namespace gyrostat::stats
