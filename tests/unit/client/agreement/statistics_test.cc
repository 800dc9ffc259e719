// Ranks that reduce, as vectors in one thread: each records its own, writes its lanes, and the leader reads what a MAX
// and a SUM in float32 made of them. The references are computed in double from what all ranks recorded.
#include "client/src/agreement/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/src/agreement/lanes.h"
#include "client/src/recorder.h"
#include "support/lcg.h"

namespace gyrostat::client {
namespace {

using model::Signal;

constexpr double kFloat = 2e-6;  // What float32 sums may be off, relatively.
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A SUM that exists, as far as settings look at it.
int NoSum(void*, float*, size_t) { return 0; }

struct Shape {
  uint32_t layers = 2, heads = 4, ranks = 4, replicas = 4;
  bool sums = true;
};

class Rank {
 public:
  Rank(const Shape& shape, uint32_t rank, std::vector<gyro_shard> shards)
      : settings_(SettingsOf(shape, rank, std::move(shards))),
        ring_(FrameLayout(shape.layers, shape.heads), 2),
        statistics(settings_.model, PlaceOf(settings_, shape.replicas)) {
    recorder.HoldFrames(true);
    recorder.Begin(1);
  }

  void Scalar(const char* name, double value) { ASSERT_EQ(recorder.Scalar(name, value), GYRO_OK); }
  void Array(const char* name, const std::vector<float>& values) {
    ASSERT_EQ(recorder.Array(name, values.data(), values.size()), GYRO_OK);
  }
  // Lanes of this rank as R would carry them, from the maxima on.
  void Write(const Moment& moment, std::vector<float>* max, std::vector<float>* sums) {
    max->assign(statistics.maxima() + statistics.more(), -FLT_MAX);
    sums->assign(statistics.sums(), 7);
    const Frame* frame = recorder.last();
    if (frame != nullptr && frame->Count(Signal::kAttnLogitMax) == statistics.maxima())
      std::transform(frame->Array(Signal::kAttnLogitMax), frame->Array(Signal::kAttnLogitMax) + statistics.maxima(),
                     max->begin(), ToLane);
    statistics.Write(frame, moment, *max, *sums);
  }

 private:
  static Settings SettingsOf(const Shape& shape, uint32_t rank, std::vector<gyro_shard> shards) {
    Settings settings;
    settings.active = true;
    settings.model.layers = shape.layers;
    settings.model.heads = shape.heads;
    settings.rank = rank;
    settings.world_size = shape.ranks;
    settings.shards = std::move(shards);
    if (shape.sums) settings.collective.sum_begin = &NoSum;
    return settings;
  }

  const Settings settings_;
  FrameRing ring_;
  Counters counters_;

 public:
  const Statistics statistics;
  Recorder recorder{&settings_, &ring_, &counters_};
};

// All layers and heads of each rank's projection: as `shards` of a rank says.
class Ranks {
 public:
  explicit Ranks(Shape shape, const std::vector<std::vector<gyro_shard>>& shards = {}) : shape_(shape) {
    for (uint32_t r = 0; r < shape.ranks; ++r)
      ranks_.push_back(std::make_unique<Rank>(shape, r, shards.empty() ? std::vector<gyro_shard>() : shards[r]));
  }

  Rank& operator[](size_t rank) { return *ranks_[rank]; }
  size_t size() const { return ranks_.size(); }

  // Passes the boundary on all ranks (but those of `dropped`) and returns the leader's frame as it leaves.
  const Frame& Reduce(model::Boundary boundary = 1, bool sums_came = true) {
    std::vector<float> max, sums, all_max, all_sums;
    for (const auto& rank : ranks_) {
      if (rank->recorder.open()) rank->recorder.End(0, 0);
      const Moment moment{boundary, 100, 40 + static_cast<double>(&rank - ranks_.data())};
      rank->Write(moment, &max, &sums);
      if (all_max.empty()) all_max = max, all_sums = sums;
      for (size_t i = 0; i < max.size(); ++i) all_max[i] = std::max(all_max[i], max[i]);
      if (&rank != ranks_.data())
        for (size_t i = 0; i < sums.size(); ++i) all_sums[i] += sums[i];
    }
    ranks_[0]->recorder.DeliverHeld();
    Frame* frame = ranks_[0]->recorder.held();
    frame->boundary = boundary;
    ranks_[0]->statistics.Read(all_max, sums_came ? all_sums : std::vector<float>(), frame);
    return *frame;
  }

 private:
  const Shape shape_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

double ScalarOf(const Frame& frame, Signal signal) { return frame.scalars[static_cast<size_t>(signal)]; }

std::vector<float> ArrayOf(const Frame& frame, Signal signal) {
  return {frame.Array(signal), frame.Array(signal) + frame.Count(signal)};
}

double UserOf(const Frame& frame, std::string_view name) {
  for (uint32_t i = 0; i < frame.user_count; ++i)
    if (std::string_view(frame.user[i].name, frame.user[i].name_size) == name) return frame.user[i].value;
  return model::kAbsent;
}

void ExpectNear(const std::vector<float>& seen, const std::vector<double>& wanted) {
  ASSERT_EQ(seen.size(), wanted.size());
  for (size_t i = 0; i < seen.size(); ++i)
    EXPECT_NEAR(seen[i], wanted[i], kFloat * std::fabs(wanted[i])) << i;
}

// Rows [begin, end) of both projections of layers [first, last).
std::vector<gyro_shard> Own(uint32_t first, uint32_t last, uint64_t begin, uint64_t end) {
  std::vector<gyro_shard> shards;
  for (uint32_t layer = first; layer < last; ++layer)
    for (const int32_t key : {0, 1}) shards.push_back({layer, key, begin, end});
  return shards;
}

TEST(Statistics, MeansAreWeightedByTokensAsInOneProcessWithAllData) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    testing::Lcg random(seed);
    Ranks ranks({});
    double loss = 0, log_z = 0, weights = 0;
    std::vector<double> hidden(3, 0), entropy(8, 0);
    for (size_t r = 0; r < ranks.size(); ++r) {
      const double tokens = 1 + random.Below(100'000), own = 2 + random.Normal(), z = random.Normal();
      std::vector<float> ms(3), rows(8);
      for (float& v : ms) v = std::exp(3 * static_cast<float>(random.Normal()));
      for (float& v : rows) v = static_cast<float>(4 * random.Uniform());
      for (size_t i = 0; i < ms.size(); ++i) hidden[i] += tokens * static_cast<double>(ms[i]);
      for (size_t i = 0; i < rows.size(); ++i) entropy[i] += tokens * static_cast<double>(rows[i]);
      loss += tokens * own, log_z += tokens * z, weights += tokens;
      ranks[r].Scalar("tokens", tokens);
      ranks[r].Scalar("loss", own);
      ranks[r].Scalar("log_z", z);
      ranks[r].Array("hidden_ms", ms);
      ranks[r].Array("attn_entropy", rows);
    }
    for (double& v : hidden) v /= weights;
    for (double& v : entropy) v /= weights;
    const Frame& frame = ranks.Reduce();
    EXPECT_NEAR(ScalarOf(frame, Signal::kLoss), loss / weights, 1e-5);
    EXPECT_NEAR(ScalarOf(frame, Signal::kLogZ), log_z / weights, 1e-5);
    ExpectNear(ArrayOf(frame, Signal::kHiddenMs), hidden);
    ExpectNear(ArrayOf(frame, Signal::kAttnEntropy), entropy);
  }
}

TEST(Statistics, TensorParallelHeadsAreConcatenatedAndSharesOfNormsAdded) {
  // Two replicas of two ranks with two heads each.
  Ranks ranks({.ranks = 4, .replicas = 2}, {Own(0, 2, 0, 2), Own(0, 2, 2, 4), Own(0, 2, 0, 2), Own(0, 2, 2, 4)});
  const float a = model::kAbsent;
  for (const size_t replica : {size_t{0}, size_t{2}}) {
    const float more = replica == 0 ? 0 : 1;
    ranks[replica].Array("attn_logit_max", {10 + more, 11, a, a, 12, 13, a, a});
    ranks[replica + 1].Array("attn_logit_max", {a, a, 20 - more, 21, a, a, 22, 23});
    ranks[replica].Array("attn_entropy", {1, 2, a, a, 3, 4, a, a});
    ranks[replica + 1].Array("attn_entropy", {a, a, 5, 6, a, a, 7, 8});
    for (const size_t part : {size_t{0}, size_t{1}}) {
      Rank& rank = ranks[replica + part];
      const float share = part == 0 ? 3 : 4;
      rank.Array("layer_grad_norm", {share, 10 * share});
      rank.Array("param_norm", {share, share});
      rank.Array("update_rms", {share, share});
      rank.Array("hidden_ms", {1, 2, 3});
      rank.Scalar("embedding_grad_norm", static_cast<double>(share));
      rank.Scalar("grad_norm_share", static_cast<double>(share));
    }
  }
  const Frame& frame = ranks.Reduce();
  EXPECT_EQ(ArrayOf(frame, Signal::kAttnLogitMax), (std::vector<float>{11, 11, 20, 21, 12, 13, 22, 23}));
  ExpectNear(ArrayOf(frame, Signal::kAttnEntropy), {1, 2, 5, 6, 3, 4, 7, 8});
  ExpectNear(ArrayOf(frame, Signal::kLayerGradNorm), {5, 50});
  ExpectNear(ArrayOf(frame, Signal::kParamNorm), {5, 5});
  ExpectNear(ArrayOf(frame, Signal::kUpdateRms), {std::sqrt(12.5), std::sqrt(12.5)});
  ExpectNear(ArrayOf(frame, Signal::kHiddenMs), {1, 2, 3});
  EXPECT_NEAR(ScalarOf(frame, Signal::kEmbeddingGradNorm), 5, 1e-5);
  EXPECT_NEAR(ScalarOf(frame, Signal::kGradNorm), 5, 1e-5);
}

TEST(Statistics, PipelineStagesFillTheLayersThatTheyHave) {
  Ranks ranks({.ranks = 4, .replicas = 2}, {Own(0, 1, 0, 4), Own(1, 2, 0, 4), Own(0, 1, 0, 4), Own(1, 2, 0, 4)});
  const float a = model::kAbsent;
  for (const size_t replica : {size_t{0}, size_t{2}}) {
    Rank &first = ranks[replica], &last = ranks[replica + 1];
    first.Array("hidden_ms", {1, 2, a});
    last.Array("hidden_ms", {a, a, 4});
    first.Array("layer_grad_norm", {3, a});
    last.Array("layer_grad_norm", {a, 4});
    first.Array("hidden_absmax", {5, 6, a});
    last.Array("hidden_absmax", {a, a, 7});
    first.Array("nonfinite", {2, a});
    last.Array("nonfinite", {a, 0});
    first.Scalar("embedding_grad_norm", 1.5);
    last.Scalar("output_grad_norm", 2.5);
    first.Scalar("grad_norm_share", 3);
    last.Scalar("grad_norm_share", 4);
    last.Scalar("loss", replica == 0 ? 2 : 3);
  }
  const Frame& frame = ranks.Reduce();
  ExpectNear(ArrayOf(frame, Signal::kHiddenMs), {1, 2, 4});
  ExpectNear(ArrayOf(frame, Signal::kLayerGradNorm), {3, 4});
  EXPECT_EQ(ArrayOf(frame, Signal::kHiddenAbsmax), (std::vector<float>{5, 6, 7}));
  EXPECT_EQ(ArrayOf(frame, Signal::kNonfinite), (std::vector<float>{4, 0}));
  EXPECT_NEAR(ScalarOf(frame, Signal::kEmbeddingGradNorm), 1.5, 1e-5);
  EXPECT_NEAR(ScalarOf(frame, Signal::kOutputGradNorm), 2.5, 1e-5);
  EXPECT_NEAR(ScalarOf(frame, Signal::kGradNorm), 5, 1e-5);
  EXPECT_NEAR(ScalarOf(frame, Signal::kLoss), 2.5, 1e-5);
}

TEST(Statistics, FlatShardsThatCutLayersAnyhowAddUpToOneCopy) {
  // One copy over three ranks: the query and key rows of a layer are all rank 0's, or cut in the middle.
  Ranks ranks({.ranks = 3, .replicas = 1}, {Own(0, 1, 0, 4), Own(1, 2, 0, 3), Own(1, 2, 3, 4)});
  for (size_t r = 0; r < 3; ++r) {
    const auto share = static_cast<float>(r + 1);
    ranks[r].Array("layer_grad_norm", {share, share});
    ranks[r].Scalar("embedding_grad_norm", static_cast<double>(share));
    ranks[r].Scalar("grad_norm_share", static_cast<double>(share));
  }
  const Frame& frame = ranks.Reduce();
  const double root = std::sqrt(14.0);
  ExpectNear(ArrayOf(frame, Signal::kLayerGradNorm), {root, root});
  EXPECT_NEAR(ScalarOf(frame, Signal::kEmbeddingGradNorm), root, 1e-5);
  EXPECT_NEAR(ScalarOf(frame, Signal::kGradNorm), root, 1e-5);
}

TEST(Statistics, ANaNOrAnInfinityOnOneRankIsNaNThereAndCountedAndNowhereElse) {
  Ranks ranks({});
  for (size_t r = 0; r < 4; ++r) {
    ranks[r].Scalar("loss", r == 2 ? std::nan("") : 2.0);
    ranks[r].Scalar("log_z", 1);
    ranks[r].Scalar("grad_norm", r == 3 ? INFINITY : 1);
    ranks[r].Scalar("tokens", r == 2 ? 0 : 10);
    ranks[r].Array("layer_grad_norm", {r == 2 ? kNaN : 1, 1});
    ranks[r].Array("hidden_ms", {1, r == 1 ? -INFINITY : 1, 1});
    ranks[r].Array("hidden_absmax", {1, 1, r == 1 ? kNaN : 1});
  }
  const Frame& frame = ranks.Reduce();
  EXPECT_TRUE(std::isnan(ScalarOf(frame, Signal::kLoss)));
  EXPECT_TRUE(std::isnan(ScalarOf(frame, Signal::kGradNorm)));
  EXPECT_NEAR(ScalarOf(frame, Signal::kLogZ), 1, 1e-6);
  const std::vector<float> norms = ArrayOf(frame, Signal::kLayerGradNorm), ms = ArrayOf(frame, Signal::kHiddenMs),
                           absmax = ArrayOf(frame, Signal::kHiddenAbsmax);
  EXPECT_TRUE(std::isnan(norms[0]) && std::isnan(ms[1]) && std::isnan(absmax[2]));
  for (const float v : {norms[1], ms[0], ms[2], absmax[0], absmax[1]}) EXPECT_NEAR(v, 1, 1e-6);
  EXPECT_EQ(UserOf(frame, "nonfinite_ranks"), 3);
}

TEST(Statistics, WhatNoRankMeasuredIsAbsentAndWhoHasNoValueHidesNobodys) {
  Ranks ranks({});
  const float a = model::kAbsent;
  for (const size_t r : {size_t{1}, size_t{3}}) {  // Not the leader.
    ranks[r].Scalar("loss", static_cast<double>(r));
    ranks[r].Scalar("grad_norm", 5);
    ranks[r].Array("layer_grad_norm", {4, a});
    ranks[r].Array("hidden_absmax", {static_cast<float>(r), a, a});
  }
  ranks[2].Array("param_norm", {a, a});
  ranks[0].Scalar("learning_rate", 0.5);
  ranks[3].Scalar("learning_rate", 0.25);
  ranks[0].Scalar("mine", 3);
  const Frame& frame = ranks.Reduce();
  EXPECT_NEAR(ScalarOf(frame, Signal::kLoss), 2, 1e-6);
  EXPECT_EQ(ScalarOf(frame, Signal::kGradNorm), 5);
  ExpectNear(ArrayOf(frame, Signal::kLayerGradNorm), {4, static_cast<double>(a)});
  EXPECT_EQ(ArrayOf(frame, Signal::kHiddenAbsmax), (std::vector<float>{3, a, a}));
  EXPECT_EQ(ScalarOf(frame, Signal::kLearningRate), 0.5);
  EXPECT_EQ(UserOf(frame, "mine"), 3);
  for (const Signal absent : {Signal::kLogZ, Signal::kLossScale, Signal::kOutputLogitAbsmax, Signal::kQkRatio})
    EXPECT_TRUE(model::IsAbsent(ScalarOf(frame, absent))) << model::SignalName(absent);
  for (const Signal absent : {Signal::kParamNorm, Signal::kHiddenMs, Signal::kNonfinite, Signal::kAttnLogitMax,
                              Signal::kAttnEntropy})
    EXPECT_EQ(frame.Count(absent), 0u) << model::SignalName(absent);
  EXPECT_TRUE(model::IsAbsent(UserOf(frame, "nonfinite_ranks")));
}

TEST(Statistics, ARankWhoseReportWasDroppedSaysNothing) {
  std::vector<float> max, sums;
  Rank silent({.ranks = 2, .replicas = 2}, 1, {});
  silent.Write({}, &max, &sums);  // Nothing has been recorded yet.
  EXPECT_TRUE(std::all_of(max.begin(), max.end(), [](float lane) { return lane == -FLT_MAX; }));
  EXPECT_TRUE(std::all_of(sums.begin(), sums.end(), [](float lane) { return lane == 0; }));
}

TEST(Statistics, NormsOfAnySizeAreSquaredWithoutLoss) {
  for (const double size : {1e-24, 1e-19, 1e-6, 1.0, 4e9, 4.3e9, 1e19, 1e30}) {
    Ranks ranks({.ranks = 64, .replicas = 64});
    for (size_t r = 0; r < ranks.size(); ++r) {
      ranks[r].Array("layer_grad_norm", {static_cast<float>(size), 0});
      ranks[r].Array("hidden_ms", {static_cast<float>(size), 0, 1});
    }
    const Frame& frame = ranks.Reduce();
    EXPECT_NEAR(ArrayOf(frame, Signal::kLayerGradNorm)[0] / size, 1, 1e-5) << size;
    EXPECT_EQ(ArrayOf(frame, Signal::kLayerGradNorm)[1], 0) << size;
    EXPECT_NEAR(ArrayOf(frame, Signal::kHiddenMs)[0] / size, 1, 1e-5) << size;
    EXPECT_TRUE(model::IsAbsent(UserOf(frame, "nonfinite_ranks"))) << size;
  }
}

TEST(Statistics, KindsScalesAndLengthsFollowTheirOwnRules) {
  Ranks ranks({});
  for (size_t r = 0; r < 4; ++r) {
    const std::vector<float> maxima(8, 5);
    ranks[r].recorder.AttnLogitMax(maxima.data(), 8, r == 2 ? GYRO_LOGIT_LSE_UPPER : GYRO_LOGIT_EXACT);
    ranks[r].Scalar("loss_scale", r == 1 ? 512 : 1024);
    ranks[r].Scalar("output_logit_absmax", static_cast<double>(r));
    ranks[r].Array("hidden_ms", {1, 2});  // Outputs of the blocks.
    if (r == 0) ranks[r].Array("hidden_absmax", {1, 2});
    if (r == 1) ranks[r].Array("hidden_absmax", {9, 0.5f, 3});
    ranks[r].Array("attn_entropy", {1, r == 3 ? 6.0f : 2.0f});  // Per layer.
  }
  const Frame& frame = ranks.Reduce();
  EXPECT_EQ(frame.logit_kind, model::LogitKind::kLseUpper);
  EXPECT_EQ(ScalarOf(frame, Signal::kLossScale), 512);
  EXPECT_EQ(ScalarOf(frame, Signal::kOutputLogitAbsmax), 3);
  ExpectNear(ArrayOf(frame, Signal::kHiddenMs), {1, 2});
  EXPECT_EQ(ArrayOf(frame, Signal::kHiddenAbsmax), (std::vector<float>{9, 1, 3}));
  ExpectNear(ArrayOf(frame, Signal::kAttnEntropy), {1, 3});
  EXPECT_EQ(frame.step_time_ms, 100);
}

TEST(Statistics, EntropiesOfVeryManyHeadsAreReducedPerLayer) {
  Ranks ranks({.layers = 128, .heads = 128, .ranks = 2, .replicas = 2});
  std::vector<float> rows(128 * 128, 2);
  std::fill_n(rows.begin(), 64, model::kAbsent);  // Half the heads of layer 0.
  ranks[0].Array("attn_entropy", rows);
  std::fill(rows.begin(), rows.end(), 5);
  ranks[1].Array("attn_entropy", rows);
  const Frame& frame = ranks.Reduce();
  ASSERT_EQ(frame.Count(Signal::kAttnEntropy), 128u);
  EXPECT_NEAR(ArrayOf(frame, Signal::kAttnEntropy)[0], 4, 1e-5);
  EXPECT_NEAR(ArrayOf(frame, Signal::kAttnEntropy)[1], 3.5, 1e-5);
}

TEST(Statistics, EachRankHasItsSlotInTheDigest) {
  Ranks ranks({});
  for (size_t r = 0; r < 4; ++r) {
    ranks[r].Scalar("loss", 2 + static_cast<double>(r));
    ranks[r].Scalar("grad_norm", 7);
    if (r == 1) ranks[r].Scalar("rank_grad_norm", 8);
    if (r == 2) ranks[r].Scalar("rank_step_time_ms", 99);
    if (r != 3) ranks[r].Scalar("weight_checksum", r == 0 ? 0x12345678 : 0x12345679);
  }
  const Frame& frame = ranks.Reduce();
  const std::vector<float> digest = ArrayOf(frame, Signal::kRankDigest);
  const auto folded = static_cast<float>((0x345678 ^ 0x12));
  const float a = model::kAbsent;
  EXPECT_EQ(digest, (std::vector<float>{0, 2, 7, 40, folded, 1, 3, 8, 41, folded + 1, 2, 4, 7, 99, folded + 1, 3, 5, 7,
                                        43, a}));
  EXPECT_NEAR(ScalarOf(frame, Signal::kLoss), 3.5, 1e-6);
}

TEST(Statistics, AboveSixtyFourRanksTheDigestTurnsByBoundary) {
  std::vector<bool> seen(130, false);
  for (const model::Boundary boundary : {7u, 8u, 9u}) {
    Ranks ranks({.layers = 1, .heads = 1, .ranks = 130, .replicas = 130});
    for (size_t r = 0; r < ranks.size(); ++r) ranks[r].Scalar("loss", 1000 + static_cast<double>(r));
    const std::vector<float> digest = ArrayOf(ranks.Reduce(boundary), Signal::kRankDigest);
    EXPECT_EQ(digest.size(), boundary % 3 == 2 ? 2u * 5 : 64u * 5);
    for (size_t at = 0; at < digest.size(); at += 5) {
      EXPECT_EQ(digest[at + 1], 1000 + digest[at]);
      seen[static_cast<size_t>(digest[at])] = true;
    }
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 130);
}

TEST(Statistics, WithoutSumsOnlyMaximaAreReduced) {
  Ranks ranks({.ranks = 2, .replicas = 1, .sums = false}, {Own(0, 2, 0, 2), Own(0, 2, 2, 4)});
  for (size_t r = 0; r < 2; ++r) {
    ranks[r].Scalar("loss", 2 + static_cast<double>(r));
    ranks[r].Scalar("output_logit_absmax", static_cast<double>(r));
    ranks[r].Array("layer_grad_norm", {3, 3});
    ranks[r].Array("nonfinite", {0, r == 1 ? 4.0f : 1.0f});
  }
  EXPECT_EQ(ranks[0].statistics.sums(), 0u);
  const Frame& frame = ranks.Reduce();
  EXPECT_EQ(ScalarOf(frame, Signal::kLoss), 2);
  EXPECT_EQ(ArrayOf(frame, Signal::kLayerGradNorm), (std::vector<float>{3, 3}));
  EXPECT_EQ(ScalarOf(frame, Signal::kOutputLogitAbsmax), 1);
  EXPECT_EQ(ArrayOf(frame, Signal::kNonfinite), (std::vector<float>{0, 4}));
  EXPECT_EQ(frame.Count(Signal::kRankDigest), 2u * 5);
}

TEST(Statistics, WhereASumIsLostNoShareIsTakenForTheWhole) {
  Ranks ranks({.ranks = 2, .replicas = 1}, {Own(0, 1, 0, 4), Own(1, 2, 0, 4)});
  for (size_t r = 0; r < 2; ++r) {
    ranks[r].Scalar("loss", 2);
    ranks[r].Array("layer_grad_norm", {r == 0 ? 3 : model::kAbsent, r == 1 ? 3 : model::kAbsent});
    ranks[r].Array("hidden_absmax", {1, 2, 3});
  }
  const Frame& frame = ranks.Reduce(1, false);
  EXPECT_EQ(ScalarOf(frame, Signal::kLoss), 2);
  EXPECT_EQ(ArrayOf(frame, Signal::kLayerGradNorm), (std::vector<float>{3, model::kAbsent}));
  EXPECT_EQ(ArrayOf(frame, Signal::kHiddenAbsmax), (std::vector<float>{1, 2, 3}));

  Ranks halves({.ranks = 2, .replicas = 1}, {Own(0, 2, 0, 2), Own(0, 2, 2, 4)});
  halves[0].Array("layer_grad_norm", {3, 3});
  halves[0].Array("attn_logit_max", {1, 1, 1, 1, 1, 1, 1, 1});
  halves[0].Scalar("grad_norm", 4);
  halves[0].recorder.End(0, 0);
  halves[0].recorder.DeliverHeld();
  Frame* alone = halves[0].recorder.held();
  halves[0].statistics.Alone(alone);
  EXPECT_EQ(ArrayOf(*alone, Signal::kLayerGradNorm), (std::vector<float>{model::kAbsent, model::kAbsent}));
  EXPECT_EQ(alone->Count(Signal::kAttnLogitMax), 0u);
  EXPECT_EQ(ScalarOf(*alone, Signal::kGradNorm), 4);
}

// A sum of sixths is less than one, and what stands for less than a copy is not reported alone.
TEST(Statistics, AWholeCopyIsWholeHoweverItsRowsAreListed) {
  Settings settings;
  settings.model.layers = 1;
  settings.model.heads = 4;
  settings.model.kv_heads = 2;
  for (uint64_t row = 0; row < 4; ++row) settings.shards.push_back({0, 0, row, row + 1});
  for (uint64_t row = 0; row < 2; ++row) settings.shards.push_back({0, 1, row, row + 1});
  const RankPlace place = PlaceOf(settings, 1);
  EXPECT_EQ(place.layer_share, std::vector<double>{1});
  EXPECT_EQ(place.share, 1);
  EXPECT_EQ(place.whole_share, 1);
}

// Whatever the lanes hold: nothing is written past a frame's arrays. (Runs under ASan as well.)
TEST(Statistics, AnyLanesAreRead) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    testing::Lcg random(seed);
    Rank rank({}, 0, {});
    rank.recorder.End(0, 0);
    rank.recorder.DeliverHeld();
    const auto any = [&random] {
      const float values[] = {0, 1, 3, 2, 8, -1, kNaN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 1e20f};
      return values[random.Below(12)];
    };
    std::vector<float> max(rank.statistics.maxima() + rank.statistics.more()), sums(rank.statistics.sums());
    std::generate(max.begin(), max.end(), any);
    std::generate(sums.begin(), sums.end(), any);
    Frame* frame = rank.recorder.held();
    rank.statistics.Read(max, sums, frame);
    for (const model::SignalInfo& info : model::Signals()) {
      if (!model::IsArray(info.signal)) continue;
      EXPECT_LE(frame->Count(info.signal), FrameLayout(2, 4).Capacity(info.shape)) << info.name;
    }
    rank.statistics.Read(std::vector<float>(3), {}, frame);
  }
}

}  // namespace
}  // namespace gyrostat::client
