#include "remedy/deepnorm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>


namespace gyrostat::remedy {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

DeepNorm Constants(DeepNormArch arch, uint64_t layers, uint64_t decoder_layers = 0) {
  std::string why;
  const auto constants = DeepNormFor(arch, layers, decoder_layers, &why);
  EXPECT_TRUE(constants) << why;
  return constants.value_or(DeepNorm{});
}

TEST(DeepNorm, HasTheConstantsOfThePaper) {
  const struct {
    uint64_t layers;
    double alpha, beta;
  } vectors[] = {{12, 2.2134, 0.3195}, {24, 2.6321, 0.2686}, {48, 3.1302, 0.2259}};
  for (const auto& v : vectors) {
    const DeepNorm decoder = Constants(DeepNormArch::kDecoder, v.layers);
    ASSERT_TRUE(decoder.decoder);
    EXPECT_FALSE(decoder.encoder);
    EXPECT_NEAR(decoder.decoder->alpha, v.alpha, 5e-5);
    EXPECT_NEAR(decoder.decoder->beta, v.beta, 5e-5);
    EXPECT_NEAR(decoder.decoder->budget, 1, 1e-12);
    const DeepNorm encoder = Constants(DeepNormArch::kEncoder, v.layers);
    ASSERT_TRUE(encoder.encoder);
    EXPECT_FALSE(encoder.decoder);
    EXPECT_EQ(encoder.encoder->alpha, decoder.decoder->alpha);
  }
  const DeepNorm both = Constants(DeepNormArch::kEncoderDecoder, 6, 6);
  EXPECT_NEAR(both.encoder->alpha, 1.4179, 5e-5);
  EXPECT_NEAR(both.encoder->beta, 0.4970, 5e-5);
  EXPECT_NEAR(both.decoder->alpha, 2.0598, 5e-5);
  EXPECT_NEAR(both.decoder->beta, 0.3433, 5e-5);
}

TEST(DeepNorm, CountsTheUpdateBudgetInUnitsOfThePaper) {
  for (const uint64_t n : {1, 6, 18, 100})
    for (const uint64_t m : {1, 6, 48}) {
      const DeepNorm both = Constants(DeepNormArch::kEncoderDecoder, n, m);
      EXPECT_NEAR(both.decoder->budget, 1, 1e-12);
      EXPECT_NEAR(both.encoder->budget, 1.0122, 1e-4) << "0.81 and 0.87 are rounded";
      // TorchScale multiplies by 1.15 where the paper divides by it: 1.77 of the budget (methods.md §4.1).
      const double ratio = 1.15 / 0.87;
      EXPECT_NEAR(both.encoder->budget * ratio * ratio, 1.77, 5e-3);
    }
  // GLM-130B: alpha (2N)^(1/2), factor (2N)^(-1/2): 1/N of it, N = 70.
  EXPECT_NEAR(UpdateBudget(140, std::sqrt(140), 1 / std::sqrt(140)) * 70, 1, 1e-12);
}

TEST(DeepNorm, RefusesDepthsThatCannotBe) {
  std::string why;
  EXPECT_FALSE(DeepNormFor(DeepNormArch::kDecoder, 0, 0, &why));
  EXPECT_EQ(why, "0 layers, wanted 1 to 100000");
  EXPECT_FALSE(DeepNormFor(DeepNormArch::kEncoderDecoder, 6, 0, &why));
  EXPECT_EQ(why, "6 layers and 0 decoder layers, wanted 1 to 100000");
  EXPECT_FALSE(DeepNormFor(DeepNormArch::kDecoder, 6, 6, &why));
  EXPECT_EQ(why, "decoder layers are counted apart only in an encoder-decoder");
}

// A layer's output as methods.md §4.3 has it: RMSNorm(alpha x + g).
std::vector<double> Output(double alpha, const std::vector<double>& x, const std::vector<double>& g) {
  std::vector<double> y(x.size());
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = alpha * x[i] + g[i];
    sum += y[i] * y[i];
  }
  for (double& each : y) each /= std::sqrt(sum / static_cast<double>(x.size()));
  return y;
}

TEST(AlphaSensitivity, IsWhatTheFunctionReallyDoes) {
  const size_t d = 64;
  for (const double rho : {0.03, 0.1, 0.5, 1.0, 2.6}) {
    std::vector<double> x(d), g(d);
    for (size_t i = 0; i < d; ++i) (i % 2 == 0 ? x : g)[i] = i % 2 == 0 ? 1.0 : 1.7 * rho;
    const double step = 1e-6;
    const std::vector<double> a = Output(1.7, x, g), b = Output(1.7 * std::exp(step), x, g);
    double moved = 0;
    for (size_t i = 0; i < d; ++i) moved += (a[i] - b[i]) * (a[i] - b[i]);
    EXPECT_NEAR(std::sqrt(moved / d) / step, AlphaSensitivity(rho), 1e-5) << rho;
  }
  EXPECT_EQ(AlphaSensitivity(1), 0.5);
  EXPECT_EQ(AlphaSensitivity(kInfinity), 0);
}

TEST(FoldFactor, RestoresTheDeclaredAlphaWithTheSameFunction) {
  const std::vector<double> x = {1, -2, 0.5, 3}, g = {0.3, 0.1, -0.7, 0.2};
  const double declared = 1, now = 2.2133638394006434;
  const auto factor = FoldFactor(declared, now);
  ASSERT_TRUE(factor);
  std::vector<double> folded = g;
  for (double& each : folded) each *= double{*factor};
  const std::vector<double> before = Output(now, x, g), after = Output(declared, x, folded);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-7);
  for (const double bad : {kNan, kInfinity, 0.0, -1.0}) {
    EXPECT_FALSE(FoldFactor(bad, 1));
    EXPECT_FALSE(FoldFactor(1, bad));
  }
}

}  // namespace
}  // namespace gyrostat::remedy
