#include "ctl/deepnorm.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace gyrostat::ctl {
namespace {

struct Result {
  int code = 0;
  std::string out, err;
};

Result Compute(const std::string& arch, uint64_t layers, uint64_t decoder_layers, bool json) {
  Request request;
  request.arch = arch;
  request.layers = layers;
  request.decoder_layers = decoder_layers;
  request.json = json;
  std::ostringstream out, err;
  const Console console{out, err, base::SystemClock(), {}, false, [] { return Size(); }};
  const int code = DeepNorm(request, console);
  return {code, out.str(), err.str()};
}

TEST(DeepNorm, PrintsTheStacksThatThereAre) {
  const auto decoder = nlohmann::json::parse(Compute("decoder", 24, 0, true).out);
  EXPECT_TRUE(decoder["encoder"].is_null());
  EXPECT_NEAR(decoder["decoder"]["alpha"].get<double>(), 2.6321, 5e-5);
  EXPECT_NEAR(decoder["decoder"]["beta"].get<double>(), 0.2686, 5e-5);
  EXPECT_NEAR(decoder["decoder"]["budget"].get<double>(), 1, 1e-9);
  const auto encoder = nlohmann::json::parse(Compute("encoder", 12, 0, true).out);
  EXPECT_TRUE(encoder["decoder"].is_null());
  EXPECT_NEAR(encoder["encoder"]["alpha"].get<double>(), 2.2134, 5e-5);
  const auto both = nlohmann::json::parse(Compute("encoder-decoder", 6, 6, true).out);
  EXPECT_NEAR(both["encoder"]["alpha"].get<double>(), 1.4179, 5e-5);
  EXPECT_NEAR(both["encoder"]["budget"].get<double>(), 1.0122, 5e-5);
  EXPECT_NEAR(both["decoder"]["beta"].get<double>(), 0.3433, 5e-5);
}

TEST(DeepNorm, PrintsATableForPeople) {
  EXPECT_EQ(Compute("encoder-decoder", 6, 6, false).out,
            "DeepNorm, encoder-decoder: x = LN(alpha x + G(x)); beta scales W_v, W_o, W_1, W_2 and a gate's W_3\n"
            "STACK      ALPHA      BETA   BUDGET\n"
            "encoder  1.41794  0.496989  1.01218\n"
            "decoder  2.05977  0.343295        1\n");
}

TEST(DeepNorm, RefusesDepthsThatCannotBe) {
  const Result result = Compute("encoder-decoder", 6, 0, true);
  EXPECT_EQ(result.code, kRefused);
  EXPECT_EQ(result.err, "gyrostatctl: deepnorm: 6 layers and 0 decoder layers, wanted 1 to 100000\n");
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(Compute("decoder", 6, 6, true).code, kRefused);
}

}  // namespace
}  // namespace gyrostat::ctl
