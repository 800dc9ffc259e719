#include "ctl/qk_clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

namespace gyrostat::ctl {
namespace {

struct Result {
  int code = 0;
  std::string out, err;
};

Result Compute(Request request) {
  std::ostringstream out, err;
  const Console console{out, err, base::SystemClock(), {}, false, [] { return Size(); }};
  const int code = QkClip(request, console);
  return {code, out.str(), err.str()};
}

nlohmann::json Json(Request request) {
  request.json = true;
  return nlohmann::json::parse(Compute(request).out);
}

TEST(QkClip, SplitsGammaEvenlyForMha) {
  Request request;
  request.tau = 100;
  request.logits = {250, 80};
  const auto table = Json(request);
  EXPECT_EQ(table["variant"], "mha");
  EXPECT_EQ(table["heads"][0]["gamma"], 0.4);
  EXPECT_EQ(table["heads"][0]["q"], std::sqrt(0.4));
  EXPECT_EQ(table["heads"][0]["k"], std::sqrt(0.4));
  EXPECT_EQ(table["heads"][1]["gamma"], 1.0);
  EXPECT_EQ(table["heads"][1]["q"], 1.0);
}

TEST(QkClip, GroupMinTakesTheSmallestOfTheGroup) {
  Request request;
  request.tau = 100;
  request.logits = {200, 400, 50, 90};
  request.kv_heads = 2;
  const auto table = Json(request);
  EXPECT_EQ(table["variant"], "group_min");
  for (const int head : {0, 1}) {
    EXPECT_EQ(table["heads"][head]["q"], 0.5);
    EXPECT_EQ(table["heads"][head]["k"], 0.5);
  }
  EXPECT_EQ(table["heads"][2]["q"], 1.0);
}

TEST(QkClip, QOnlyLeavesTheSharedKeyAlone) {
  Request request;
  request.tau = 100;
  request.logits = {200, 400};
  request.kv_heads = 1;
  request.variant = "q_only";
  const auto table = Json(request);
  EXPECT_EQ(table["heads"][0]["q"], 0.5);
  EXPECT_EQ(table["heads"][1]["q"], 0.25);
  EXPECT_EQ(table["heads"][0]["k"], 1.0);
}

TEST(QkClip, NoLogitGivesAFactorOutsideZeroToOne) {
  Request request;
  request.tau = 1e-300;
  request.logits = {-1e308, -5, 0, 1e-320, 1e308, NAN, INFINITY, -INFINITY};
  for (const uint32_t kv_heads : {0u, 1u, 2u}) {
    for (const std::string variant : {"", "q_only", "mla", "layer_gain"}) {
      request.kv_heads = kv_heads;
      request.variant = variant;
      const auto table = Json(request);
      for (const auto& head : table["heads"])
        for (const std::string field : {"gamma", "q", "k"}) {
          EXPECT_GT(head[field].get<double>(), 0) << head;
          EXPECT_LE(head[field].get<double>(), 1) << head;
        }
      EXPECT_EQ(table["heads"][5]["max"], "NaN");
    }
  }
}

TEST(QkClip, SaysWhyANonFiniteHeadIsLeftAlone) {
  Request request;
  request.tau = 100;
  request.logits = {NAN, 5000};
  const Result result = Compute(request);
  EXPECT_EQ(result.code, kDone);
  EXPECT_EQ(result.out, "tau 100, variant mha\n"
                        "HEAD   MAX  GAMMA       W_Q       W_K\n"
                        "   0   NaN      1         1         1\n"
                        "    Not finite: never clipped; look at the nonfinite findings.\n"
                        "   1  5000   0.02  0.141421  0.141421\n"
                        "    One order takes at most a factor of ten: a daemon needs several.\n");
}

TEST(QkClip, NamesTheRowsOfAnMlaHead) {
  Request request;
  request.tau = 100;
  request.logits = {50, 400};
  request.variant = "mla";
  request.mla = {.nope = 128, .rope = 64, .value = 100};
  const auto table = Json(request);
  EXPECT_EQ(table["heads"][0]["q_rope"], 1.0);
  EXPECT_EQ(table["heads"][1]["q_rope"], 0.25);
  EXPECT_EQ(table["heads"][1]["rows"], (nlohmann::json{{"q_b_proj rows 192..319", 0.5},
                                                       {"q_b_proj rows 320..383", 0.25},
                                                       {"kv_b_proj rows 228..355", 0.5}}));
  EXPECT_EQ(Compute(request).out,
            "tau 100, variant mla\n"
            "HEAD  MAX  GAMMA  W_Q  W_K  W_Q_ROPE\n"
            "   0   50      1    1    1         1\n"
            "   1  400   0.25  0.5  0.5      0.25\n"
            "    q_b_proj rows 192..319 times 0.5; q_b_proj rows 320..383 times 0.25; "
            "kv_b_proj rows 228..355 times 0.5\n");
}

TEST(QkClip, GivesALayerOneFactorBehindAPerHeadNorm) {
  Request request;
  request.tau = 100;
  request.logits = {50, 400};
  request.kv_heads = 1;
  request.variant = "layer_gain";
  const auto answer = Json(request);  // Named, so that it outlives the loop's range.
  EXPECT_EQ(answer["heads"].size(), 2u);
  for (const auto& head : answer["heads"]) EXPECT_EQ(head["q"], 0.5);
  EXPECT_NE(Compute(request).out.find("Q_GAIN  K_GAIN"), std::string::npos);
}

TEST(QkClip, RefusesShapesAndTausThatCannotBe) {
  Request request;
  request.tau = 100;
  request.logits = {1, 2, 3};
  request.kv_heads = 2;
  EXPECT_EQ(Compute(request).code, kRefused);
  EXPECT_EQ(Compute(request).err, "gyrostatctl: qk-clip: 2 key heads for 3 heads, wanted a divisor\n");
  request.kv_heads = 1;
  request.variant = "mha";
  EXPECT_EQ(Compute(request).code, kRefused);
  request.variant = "";
  for (const double tau : {0.0, -1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    request.tau = tau;
    EXPECT_EQ(Compute(request).code, kRefused);
    EXPECT_NE(Compute(request).err.find("wanted a finite number above 0"), std::string::npos);
  }
}

}  // namespace
}  // namespace gyrostat::ctl
