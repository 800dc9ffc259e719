// Invariant A of methods.md §2.6, on real projections: with the weights unchanged between measuring and clipping, the
// same batch gives tau for flagged heads and what the variant promises for the others.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "remedy/qk_clip.h"
#include "support/lcg.h"

namespace gyrostat::remedy {
namespace {

using model::ClipVariant;

constexpr int kTokens = 12, kWidth = 16, kHeadDim = 4;

float ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000);
}

// One projection: `heads` blocks of kHeadDim rows, each row kWidth weights and a bias.
struct Projection {
  std::vector<float> rows;
  Projection(int heads, testing::Lcg* random) : rows(size_t(heads) * kHeadDim * (kWidth + 1)) {
    for (float& w : rows) w = static_cast<float>(random->Normal());
  }
  void Round() {
    for (float& w : rows) w = ToBf16(w);
  }
  void Scale(const std::vector<HeadFactor>& factors) {
    for (const HeadFactor& f : factors)
      for (int i = 0; i < kHeadDim * (kWidth + 1); ++i) rows[f.head * kHeadDim * (kWidth + 1) + i] *= f.factor;
  }
  double At(int row, const std::vector<double>& x) const {
    const float* w = &rows[size_t(row) * (kWidth + 1)];
    double sum = w[kWidth];
    for (int i = 0; i < kWidth; ++i) sum += w[i] * x[i];
    return sum;
  }
};

struct Layer {
  int heads, kv_heads;
  Projection q, k;
  std::vector<std::vector<double>> tokens;

  Layer(int h, int kv, uint64_t seed) : Layer(h, kv, testing::Lcg(seed)) {}
  Layer(int h, int kv, testing::Lcg random) : heads(h), kv_heads(kv), q(h, &random), k(kv, &random), tokens(kTokens) {
    for (auto& x : tokens)
      for (int i = 0; i < kWidth; ++i) x.push_back(random.Normal());
  }

  // The largest softmax input of each head: scaled and causal.
  std::vector<double> Maxima() const {
    std::vector<double> maxima;
    for (int h = 0; h < heads; ++h) {
      double most = -HUGE_VAL;
      for (int t = 0; t < kTokens; ++t)
        for (int s = 0; s <= t; ++s) {
          double dot = 0;
          for (int d = 0; d < kHeadDim; ++d)
            dot += q.At(h * kHeadDim + d, tokens[t]) * k.At(h / (heads / kv_heads) * kHeadDim + d, tokens[s]);
          most = std::max(most, dot / std::sqrt(kHeadDim));
        }
      maxima.push_back(most);
    }
    return maxima;
  }
};

enum class Weights { kFp32, kBf16 };

// Clips at a tau that flags about half of the heads, and returns how many; `tolerance` is of the maxima.
int ExpectInvariantA(const ClipShape& shape, Weights weights, uint64_t seed, double tolerance) {
  Layer layer(static_cast<int>(shape.heads), static_cast<int>(shape.kv_heads), seed);
  if (weights == Weights::kBf16) layer.q.Round(), layer.k.Round();
  const std::vector<double> before = layer.Maxima();
  std::vector<double> sorted = before;
  std::sort(sorted.begin(), sorted.end());
  const double tau = sorted[sorted.size() / 2] * 0.999;

  std::vector<model::ClipEntry> entries;
  for (uint32_t h = 0; h < shape.heads; ++h)
    if (const auto target = ClipTarget(before[h], tau, 0))
      entries.push_back({0, h, static_cast<float>(before[h]), *target});
  ClipPlan plan;
  PlanClip(shape, entries, ClipLedger(1, shape.heads), &plan);
  layer.q.Scale(plan.q);
  layer.k.Scale(plan.k);
  if (weights == Weights::kBf16) layer.q.Round(), layer.k.Round();

  const std::vector<double> after = layer.Maxima();
  const uint32_t group = shape.heads / shape.kv_heads;
  for (uint32_t h = 0; h < shape.heads; ++h) {
    double wanted = std::min(before[h], tau);
    if (shape.variant == ClipVariant::kGroupMin) {
      const uint32_t first = h / group * group;
      const double worst = *std::max_element(before.begin() + first, before.begin() + first + group);
      wanted = before[h] * std::min(1.0, tau / worst);
    }
    EXPECT_NEAR(after[h], wanted, tolerance * std::fabs(wanted)) << "head " << h << " seed " << seed;
  }
  return static_cast<int>(entries.size());
}

TEST(InvariantA, HoldsForEveryVariantWithBias) {
  const ClipShape shapes[] = {{ClipVariant::kMha, 0.5, 1, 8, 8},
                              {ClipVariant::kGroupMin, 0.5, 1, 8, 2},
                              {ClipVariant::kGroupMin, 0.5, 1, 8, 1},
                              {ClipVariant::kQOnly, 1, 1, 8, 2},
                              {ClipVariant::kQOnly, 1, 1, 8, 1}};
  for (const ClipShape& shape : shapes)
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      EXPECT_GE(ExpectInvariantA(shape, Weights::kFp32, seed, 2e-6), 4);
      EXPECT_GE(ExpectInvariantA(shape, Weights::kBf16, seed, 1e-2), 4);
    }
}

}  // namespace
}  // namespace gyrostat::remedy
