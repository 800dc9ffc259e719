#include "ctl/extend_warmup.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace gyrostat::ctl {
namespace {

struct Result {
  int code = 0;
  std::string out, err;
};

Result Compute(const WarmupQuestion& question, bool json) {
  Request request;
  request.warmup = question;
  request.json = json;
  std::ostringstream out, err;
  const Console console{out, err, base::SystemClock(), {}, false, [] { return Size(); }};
  const int code = ExtendWarmup(request, console);
  return {code, out.str(), err.str()};
}

WarmupQuestion Cosine() {
  return {.kind = "cosine", .peak = 1e-3, .warmup = 1000, .total = 20000, .at = 300, .to = 2000, .steps = {}};
}

TEST(ExtendWarmup, PrintsTheVectorOfMethodsSection7) {
  WarmupQuestion question = Cosine();
  question.steps = {299, 300, 301, 1000, 1150, 1999, 2000, 2001};
  const auto out = nlohmann::json::parse(Compute(question, true).out);
  EXPECT_EQ(out["to"], 2000);
  const double rates[] = {2.99e-4, 1.489771e-4, 1.494737e-4, 4.965903e-4, 5.710789e-4, 9.926841e-4, 9.931807e-4};
  for (size_t i = 0; i < std::size(rates); ++i) {
    EXPECT_EQ(out["steps"][i]["step"], question.steps[i]);
    EXPECT_NEAR(out["steps"][i]["rate"].get<double>(), rates[i], 0.6e-10);
  }
  EXPECT_EQ(out["steps"][0]["rate"], out["steps"][0]["base"]);
  EXPECT_EQ(out["steps"][7]["rate"], out["steps"][7]["base"]);
}

TEST(ExtendWarmup, ShowsTheShapeWhereNoStepsAreAskedFor) {
  WarmupQuestion question = Cosine();
  question.kind = "const";
  question.to = 600 + 1000;
  question.at = 400;
  EXPECT_EQ(Compute(question, false).out,
            "from step 400 on, warm-up until step 1600\n"
            "STEP      BASE         RATE     SHARE\n"
            " 399  0.000399     0.000399         1\n"
            " 400    0.0004      0.00025     0.625\n"
            " 401  0.000401  0.000250625     0.625\n"
            " 700    0.0007    0.0004375     0.625\n"
            "1000     0.001     0.000625     0.625\n"
            "1300     0.001    0.0008125    0.8125\n"
            "1599     0.001  0.000999375  0.999375\n"
            "1600     0.001        0.001         1\n"
            "1601     0.001        0.001         1\n");
}

TEST(ExtendWarmup, TakesTheDefaultsOfTheDaemon) {
  WarmupQuestion question = Cosine();
  question.to.reset();
  EXPECT_EQ(nlohmann::json::parse(Compute(question, true).out)["to"], 7000);
  question.at = 5000;  // After the warm-up: a notch of one warm-up.
  question.steps = {5000, 5050};
  const auto notch = nlohmann::json::parse(Compute(question, true).out);
  EXPECT_EQ(notch["to"], 6000);
  EXPECT_EQ(notch["steps"][0]["rate"], notch["steps"][0]["base"]);
  EXPECT_NEAR(notch["steps"][1]["rate"].get<double>() / notch["steps"][1]["base"].get<double>(), 0.3, 1e-9);
}

TEST(ExtendWarmup, RefusesWhatADaemonWouldNotOrder) {
  WarmupQuestion question = Cosine();
  question.to = 8001;
  const Result result = Compute(question, true);
  EXPECT_EQ(result.code, kRefused);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "gyrostatctl: warmup: the new end of the warm-up is step 8001, wanted at most 8000, 8 times "
                        "the declared one\n");
  question.to = 2000;
  question.total = 0;
  EXPECT_EQ(Compute(question, true).code, kRefused) << "a cosine needs its total";
}

}  // namespace
}  // namespace gyrostat::ctl
