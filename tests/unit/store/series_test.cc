#include "store/series.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gyrostat::store {
namespace {

using model::Signal;

engine::SeriesQuery Ask(Signal signal, std::optional<uint32_t> layer = {}, std::optional<uint32_t> head = {}) {
  engine::SeriesQuery query;
  query.signal = signal;
  query.layer = layer;
  query.head = head;
  return query;
}

std::vector<size_t> Indices(const engine::SeriesQuery& query, size_t size, uint32_t layers, uint32_t heads) {
  const auto indices = IndicesOf(query, size, layers, heads);
  EXPECT_TRUE(indices.ok()) << indices.status();
  return indices.ok() ? *indices : std::vector<size_t>();
}

TEST(Series, FindsAHeadLayerMajor) {
  EXPECT_EQ(Indices(Ask(Signal::kAttnLogitMax, 1, 2), 8, 2, 4), (std::vector<size_t>{6}));
}

TEST(Series, TakesWhatTheQueryLeavesOpen) {
  EXPECT_EQ(Indices(Ask(Signal::kAttnLogitMax, 1), 8, 2, 4), (std::vector<size_t>{4, 5, 6, 7}));
  EXPECT_EQ(Indices(Ask(Signal::kAttnLogitMax, {}, 2), 8, 2, 4), (std::vector<size_t>{2, 6}));
  EXPECT_EQ(Indices(Ask(Signal::kAttnLogitMax), 8, 2, 4).size(), 8u);
}

TEST(Series, CountsBoundariesAsLayers) {
  EXPECT_EQ(Indices(Ask(Signal::kHiddenMs, 2), 3, 2, 4), (std::vector<size_t>{2}));
}

TEST(Series, TellsEntropyPerLayerFromEntropyPerHead) {
  EXPECT_EQ(Indices(Ask(Signal::kAttnEntropy, 1), 2, 2, 4), (std::vector<size_t>{1}));
  EXPECT_EQ(Indices(Ask(Signal::kAttnEntropy, 1), 8, 2, 4).size(), 4u);
}

TEST(Series, InfersHeadsWhereTheSpecIsSilent) {
  EXPECT_EQ(Indices(Ask(Signal::kAttnLogitMax, 1, 3), 8, 2, 0), (std::vector<size_t>{7}));
  EXPECT_EQ(Indices(Ask(Signal::kAttnLogitMax, 0, 7), 8, 0, 0), (std::vector<size_t>{7}));
}

TEST(Series, RefusesALayerThatIsNotThere) {
  EXPECT_EQ(IndicesOf(Ask(Signal::kAttnLogitMax, 2), 8, 2, 4).status().message(),
            "layer 2 of attn_logit_max: it has 2, counted from 0");
  EXPECT_EQ(IndicesOf(Ask(Signal::kAttnLogitMax, 0, 4), 8, 2, 4).status().message(),
            "head 4 of attn_logit_max: it has 4, counted from 0");
}

TEST(Series, RefusesWhatMakesNoSense) {
  EXPECT_EQ(CheckQuery(Ask(Signal::kLoss, 0)).message(), "loss is one value a step: it has no layers");
  EXPECT_EQ(CheckQuery(Ask(Signal::kLayerGradNorm, 0, 0)).message(),
            "layer_grad_norm is one value a layer: it has no heads");
  EXPECT_EQ(CheckQuery(Ask(Signal::kNone)).message(), "no signal is named");
  EXPECT_TRUE(CheckQuery(Ask(Signal::kAttnEntropy, 0, 0)).ok());
}

TEST(Series, LetsNoNanHide) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), absent = static_cast<double>(model::kAbsent);
  EXPECT_TRUE(std::isnan(Larger(nan, 1e30)));
  EXPECT_TRUE(std::isnan(Larger(1e30, nan)));
  EXPECT_EQ(Larger(absent, -5), -5);
  EXPECT_EQ(Larger(-5, absent), -5);
  EXPECT_EQ(Larger(2, 3), 3);
}

}  // namespace
}  // namespace gyrostat::store
