#include "stats/depth_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/lcg.h"

namespace gyrostat::stats {
namespace {

enum class Law { kFlat, kLine, kPower, kHarmonic };

std::vector<double> Profile(Law law, double k, size_t layers, double noise, testing::Lcg* random) {
  std::vector<double> logs;
  double harmonic = 0;
  for (size_t l = 0; l <= layers; ++l) {
    const auto depth = static_cast<double>(l);
    if (l > 0) harmonic += 1 / depth;
    double y = 0.7;
    if (law == Law::kLine) y += std::log(1 + k * depth);
    if (law == Law::kPower) y += k * depth;
    if (law == Law::kHarmonic) y += std::log(1 + k * harmonic);
    logs.push_back(y + noise * random->Normal());
  }
  return logs;
}

TEST(DepthFit, FindsParametersOfExactProfiles) {
  testing::Lcg random(1);
  EXPECT_NEAR(FitDepth(Profile(Law::kLine, 0.8, 24, 0, &random), 0)->k_linear, 0.8, 1e-3);
  EXPECT_NEAR(FitDepth(Profile(Law::kHarmonic, 1.2, 24, 0, &random), 0)->k_logarithmic, 1.2, 1e-3);
  EXPECT_NEAR(FitDepth(Profile(Law::kPower, 0.31, 24, 0, &random), 0)->c, 0.31, 1e-12);
  EXPECT_EQ(FitDepth(Profile(Law::kFlat, 0, 24, 0, &random), 0)->best, DepthLaw::kConstant);
}

TEST(DepthFit, OutputsOfBlocksAreTheSameProfileWithoutItsFirstValue) {
  testing::Lcg random(1);
  std::vector<double> line = Profile(Law::kLine, 1, 24, 0, &random);
  std::vector<double> harmonic = Profile(Law::kHarmonic, 1, 24, 0, &random);
  line.erase(line.begin());
  harmonic.erase(harmonic.begin());
  EXPECT_NEAR(FitDepth(line, 1)->k_linear, 1, 1e-3);
  EXPECT_NEAR(FitDepth(harmonic, 1)->k_logarithmic, 1, 1e-3);
}

// methods.md §5.4: 400 trials, k in [0.5, 1.5], end points matched.
TEST(DepthFit, LinearAgainstExponentialIsDecidedAsOftenAsTheSpecificationSays) {
  testing::Lcg random(4);
  struct Case {
    size_t layers;
    double noise, correct_min, wrong_max;
  };
  for (const Case& c : {Case{12, 0.05, 0.99, 0.0025}, Case{12, 0.1, 0.99, 0.0025}, Case{12, 0.2, 0.8, 0.01},
                        Case{24, 0.2, 0.99, 0.0025}, Case{48, 0.4, 0.99, 0.0025}}) {
    int correct = 0, wrong = 0;
    for (int trial = 0; trial < 400; ++trial) {
      const double k = 0.5 + random.Uniform();
      const bool linear = trial % 2 == 0;
      const double per_layer = std::log(1 + k * static_cast<double>(c.layers)) / static_cast<double>(c.layers);
      const auto logs = linear ? Profile(Law::kLine, k, c.layers, c.noise, &random)
                               : Profile(Law::kPower, per_layer, c.layers, c.noise, &random);
      const double d = FitDepth(logs, 0)->preference * (linear ? 1 : -1);
      correct += d > 3;
      wrong += d < -3;
    }
    EXPECT_GE(correct, c.correct_min * 400) << c.layers << " layers, noise " << c.noise;
    EXPECT_LE(wrong, c.wrong_max * 400) << c.layers << " layers, noise " << c.noise;
  }
}

TEST(DepthFit, NoiseAloneIsConstant) {
  testing::Lcg random(5);
  int constant = 0;
  for (int trial = 0; trial < 200; ++trial)
    constant += FitDepth(Profile(Law::kFlat, 0, 24, 0.1, &random), 0)->best == DepthLaw::kConstant;
  EXPECT_GE(constant, 170);
}

TEST(DepthFit, SaysNothingOfThreeLayers) {
  EXPECT_FALSE(FitDepth(std::vector<double>{0, 1, 2}, 0));
  EXPECT_TRUE(FitDepth(std::vector<double>{0, 1, 2, 3}, 0));
}

}  // namespace
}  // namespace gyrostat::stats
