#include "store/thin.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "store/series.h"
#include "support/plain_run.h"

namespace gyrostat::store {
namespace {

using engine::Resolution;
using model::Report;
using model::Signal;

constexpr uint32_t kLayers = 6, kHeads = 16;
const double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<Report> Sample(size_t count) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> value(1, 100);
  std::vector<Report> reports;
  for (size_t n = 1; n <= count; ++n) {
    Report& report = reports.emplace_back(testing::PlainReport(n));
    for (const Signal signal : {Signal::kAttnLogitMax, Signal::kAttnEntropy}) {
      report.MutableArray(signal).clear();
      for (uint32_t i = 0; i < kLayers * kHeads; ++i) report.MutableArray(signal).push_back(value(random));
    }
    report.MutableArray(Signal::kLayerGradNorm).clear();
    for (uint32_t i = 0; i < kLayers; ++i) report.MutableArray(Signal::kLayerGradNorm).push_back(value(random));
    report.MutableArray(Signal::kRankDigest).assign(10, 1);
    report.user = {{"tokens", static_cast<double>(n)}};
  }
  return reports;
}

std::vector<Report> Thinned(Resolution to, std::vector<Report> reports) {
  Thin(to, kLayers, kHeads, &reports);
  return reports;
}

float LargestOf(std::span<const float> values) {
  float largest = model::kAbsent;
  for (const float value : values)
    largest = static_cast<float>(Larger(static_cast<double>(largest), static_cast<double>(value)));
  return largest;
}

size_t Present(std::span<const float> values) {
  return static_cast<size_t>(std::ranges::count_if(values, [](float v) { return !model::IsAbsent(v); }));
}

TEST(Thin, ToHeadsKeepsTheLargestOfEachLayerOfEachReport) {
  const std::vector<Report> before = Sample(64), after = Thinned(Resolution::kHeads, before);
  for (size_t r = 0; r < before.size(); ++r) {
    const auto was = before[r].Array(Signal::kAttnLogitMax), is = after[r].Array(Signal::kAttnLogitMax);
    ASSERT_EQ(is.size(), was.size());
    for (uint32_t l = 0; l < kLayers; ++l)
      EXPECT_EQ(LargestOf(is.subspan(l * kHeads, kHeads)), LargestOf(was.subspan(l * kHeads, kHeads))) << r;
    EXPECT_LE(Present(is), kLayers + kTopHeads);
    for (size_t i = 0; i < is.size(); ++i) EXPECT_TRUE(model::IsAbsent(is[i]) || is[i] == was[i]);
    EXPECT_EQ(after[r].Scalar(Signal::kLoss), before[r].Scalar(Signal::kLoss));
    EXPECT_TRUE(std::ranges::equal(after[r].Array(Signal::kLayerGradNorm), before[r].Array(Signal::kLayerGradNorm)));
    EXPECT_EQ(after[r].Array(Signal::kRankDigest).size(), 10u);
  }
}

TEST(Thin, ToHeadsKeepsTheWorstHeadsWhole) {
  std::vector<Report> before = Sample(64);
  before[40].MutableArray(Signal::kAttnLogitMax)[17] = 1e6f;  // Once is enough.
  const std::vector<Report> after = Thinned(Resolution::kHeads, before);
  for (size_t r = 0; r < before.size(); ++r)
    EXPECT_EQ(after[r].Array(Signal::kAttnLogitMax)[17], before[r].Array(Signal::kAttnLogitMax)[17]);
}

TEST(Thin, KnowsThatLowEntropyIsBad) {
  std::vector<Report> before = Sample(32);
  before[3].MutableArray(Signal::kAttnEntropy)[50] = 0.001f;
  const std::vector<Report> after = Thinned(Resolution::kHeads, before);
  for (size_t r = 0; r < before.size(); ++r) {
    const auto was = before[r].Array(Signal::kAttnEntropy), is = after[r].Array(Signal::kAttnEntropy);
    EXPECT_EQ(is[50], was[50]) << r;
    for (uint32_t l = 0; l < kLayers; ++l) {
      const float lowest = *std::ranges::min_element(was.subspan(l * kHeads, kHeads));
      EXPECT_EQ(std::ranges::count(is.subspan(l * kHeads, kHeads), lowest), 1) << r;
    }
  }
}

TEST(Thin, LetsNoNanHide) {
  std::vector<Report> before = Sample(32);
  before[9].MutableArray(Signal::kAttnLogitMax)[3] = static_cast<float>(kNan);
  before[9].SetScalar(Signal::kLoss, kNan);
  for (const Resolution to : {Resolution::kHeads, Resolution::kExtremes}) {
    const std::vector<Report> after = Thinned(to, before);
    EXPECT_TRUE(std::isnan(after[9].Array(Signal::kAttnLogitMax)[3]));
    EXPECT_TRUE(std::isnan(after[9].Scalar(Signal::kLoss)));
  }
}

TEST(Thin, ToExtremesKeepsSmallestAndLargestAtTheirOwnSteps) {
  std::vector<Report> before = Sample(64);
  before[20].SetScalar(Signal::kLoss, 1000);  // A spike of one step must stay one.
  const std::vector<Report> after = Thinned(Resolution::kExtremes, Thinned(Resolution::kHeads, before));
  ASSERT_EQ(after.size(), before.size());
  for (size_t from = 0; from < 64; from += kBucketReports) {
    std::vector<double> was, is;
    for (size_t r = from; r < from + kBucketReports; ++r) {
      was.push_back(before[r].Scalar(Signal::kLoss));
      if (!after[r].Has(Signal::kLoss)) continue;
      is.push_back(after[r].Scalar(Signal::kLoss));
      EXPECT_EQ(is.back(), was.back());
      EXPECT_EQ(after[r].step, before[r].step);
    }
    EXPECT_EQ(is.size(), 2u);
    EXPECT_EQ(*std::ranges::min_element(is), *std::ranges::min_element(was));
    EXPECT_EQ(*std::ranges::max_element(is), *std::ranges::max_element(was));
  }
  EXPECT_EQ(after[20].Scalar(Signal::kLoss), 1000);
  size_t tokens = 0;
  for (const Report& report : after) tokens += report.user.size();
  EXPECT_EQ(tokens, 8u);
}

TEST(Thin, ToExtremesKeepsTheLargestOfEachLayer) {
  const std::vector<Report> before = Sample(64);
  const std::vector<Report> after = Thinned(Resolution::kExtremes, Thinned(Resolution::kHeads, before));
  for (size_t from = 0; from < 64; from += kBucketReports)
    for (uint32_t l = 0; l < kLayers; ++l) {
      float was = model::kAbsent, is = model::kAbsent;
      size_t present = 0, gradients = 0;
      for (size_t r = from; r < from + kBucketReports; ++r) {
        was = std::max(was, LargestOf(before[r].Array(Signal::kAttnLogitMax).subspan(l * kHeads, kHeads)));
        const auto kept = after[r].Array(Signal::kAttnLogitMax);
        if (!kept.empty()) is = std::max(is, LargestOf(kept.subspan(l * kHeads, kHeads)));
        if (!kept.empty()) present += Present(kept.subspan(l * kHeads, kHeads));
        const auto gradient = after[r].Array(Signal::kLayerGradNorm);
        gradients += !gradient.empty() && !model::IsAbsent(gradient[l]) ? 1 : 0;
      }
      EXPECT_EQ(is, was);
      EXPECT_EQ(present, 1u);
      EXPECT_EQ(gradients, 2u);
    }
  for (const Report& report : after) EXPECT_TRUE(report.Array(Signal::kRankDigest).empty());
}

TEST(Thin, TwiceIsAsOnce) {
  for (const Resolution to : {Resolution::kHeads, Resolution::kExtremes}) {
    const std::vector<Report> once = Thinned(to, Sample(50)), twice = Thinned(to, once);
    for (size_t i = 0; i < once.size(); ++i) {
      base::ByteWriter a, b;
      base::SaveTo(&a, once[i]);
      base::SaveTo(&b, twice[i]);
      EXPECT_EQ(a.bytes(), b.bytes()) << i;
    }
  }
}

TEST(Thin, WithoutAModelCountsAnArrayAsOneLayer) {
  std::vector<Report> reports = Sample(10);
  const float largest = LargestOf(reports[4].Array(Signal::kAttnLogitMax));
  Thin(Resolution::kHeads, 0, 0, &reports);
  EXPECT_EQ(LargestOf(reports[4].Array(Signal::kAttnLogitMax)), largest);
  EXPECT_LE(Present(reports[4].Array(Signal::kAttnLogitMax)), 1 + kTopHeads);
}

}  // namespace
}  // namespace gyrostat::store
