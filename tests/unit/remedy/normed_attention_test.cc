// Invariant A of methods.md §2.6 where a clip is not a matter of W_q and W_k rows alone: behind a query-key norm, and
// in MLA. The logits of real vectors before and after must be in the ratio that the plan charged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "remedy/qk_clip.h"
#include "support/lcg.h"

namespace gyrostat::remedy {
namespace {

using model::ClipVariant;
using Vector = std::vector<double>;

constexpr int kTokens = 10, kHeadDim = 8, kHeads = 4;

double Dot(const double* a, const double* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// q or k of all tokens before the norm: rows of a random projection, token-major, [heads][kHeadDim].
std::vector<Vector> Projected(int heads, testing::Lcg* random) {
  std::vector<Vector> tokens(kTokens, Vector(static_cast<size_t>(heads * kHeadDim)));
  for (Vector& token : tokens)
    for (double& x : token) x = 4 * random->Normal();
  return tokens;
}

// A norm over queries or keys: RMS over each head or over all, times the gain as the norm applies it, plus bias.
struct Norm {
  bool flattened = false, unit_offset = false;
  std::vector<float> gain, bias;

  Norm(int heads, bool over_all, bool offset, testing::Lcg* random) : flattened(over_all), unit_offset(offset) {
    const size_t size = static_cast<size_t>(flattened ? heads * kHeadDim : kHeadDim);
    for (size_t i = 0; i < size; ++i) {
      gain.push_back(static_cast<float>((offset ? 2 : 3) + 0.5 * random->Normal()));
      bias.push_back(static_cast<float>(0.5 * random->Normal()));
    }
  }

  Vector operator()(const Vector& x) const {
    Vector out(x.size());
    const size_t block = flattened ? x.size() : kHeadDim;
    for (size_t first = 0; first < x.size(); first += block) {
      const double rms = std::sqrt(Dot(&x[first], &x[first], static_cast<int>(block)) / static_cast<double>(block));
      for (size_t i = 0; i < block; ++i)
        out[first + i] = x[first + i] / rms * (gain[i] + (unit_offset ? 1.0 : 0.0)) + bias[i];
    }
    return out;
  }

  // The head's slice, or the whole gain where heads share it.
  void Scale(uint32_t head, float factor) {
    const size_t first = flattened ? head * kHeadDim : 0;
    for (size_t i = first; i < first + kHeadDim; ++i) {
      gain[i] = unit_offset ? ScaledUnitOffset(gain[i], factor) : gain[i] * factor;
      bias[i] *= factor;
    }
  }
};

Vector Maxima(const std::vector<Vector>& q, const std::vector<Vector>& k, int group) {
  Vector maxima;
  for (int h = 0; h < kHeads; ++h) {
    double most = -HUGE_VAL;
    for (int t = 0; t < kTokens; ++t)
      for (int s = 0; s <= t; ++s)
        most = std::max(most, Dot(&q[static_cast<size_t>(t)][static_cast<size_t>(h * kHeadDim)],
                                  &k[static_cast<size_t>(s)][static_cast<size_t>(h / group * kHeadDim)], kHeadDim) /
                                  std::sqrt(kHeadDim));
    maxima.push_back(most);
  }
  return maxima;
}

std::vector<Vector> Through(const Norm& norm, const std::vector<Vector>& tokens) {
  std::vector<Vector> out;
  for (const Vector& token : tokens) out.push_back(norm(token));
  return out;
}

ClipPlan Plan(const ClipShape& shape, const Vector& maxima, double tau) {
  std::vector<model::ClipEntry> entries;
  for (uint32_t h = 0; h < kHeads; ++h)
    if (const auto target = ClipTarget(maxima[h], tau, 0))
      entries.push_back({0, h, static_cast<float>(maxima[h]), *target});
  ClipPlan plan;
  PlanClip(shape, entries, ClipLedger(1, kHeads), &plan);
  return plan;
}

// What each head's maximum becomes if the plan charges the truth.
Vector Wanted(const Vector& before, const ClipPlan& plan) {
  Vector wanted = before;
  for (size_t i = 0; i < plan.charged.size(); ++i) wanted[plan.charged.head[i]] *= ExpMinus(plan.charged.ticks[i]);
  return wanted;
}

void ExpectGainClip(const ClipShape& shape, bool flattened, bool unit_offset, uint64_t seed) {
  testing::Lcg random(seed);
  const int kv_heads = static_cast<int>(shape.kv_heads);
  const std::vector<Vector> q = Projected(kHeads, &random), k = Projected(kv_heads, &random);
  Norm q_norm(kHeads, flattened, unit_offset, &random), k_norm(kv_heads, flattened, unit_offset, &random);
  const Vector before = Maxima(Through(q_norm, q), Through(k_norm, k), kHeads / kv_heads);
  const double worst = *std::max_element(before.begin(), before.end());
  const ClipPlan plan = Plan(shape, before, worst * 0.8);
  ASSERT_FALSE(plan.q.empty());
  if (flattened) {
    for (const HeadFactor& f : plan.q) q_norm.Scale(f.head, f.factor);
    for (const HeadFactor& f : plan.k) k_norm.Scale(f.head, f.factor);
  } else {  // One factor for the layer, on each side.
    q_norm.Scale(0, plan.q[0].factor);
    k_norm.Scale(0, plan.k[0].factor);
  }
  const Vector after = Maxima(Through(q_norm, q), Through(k_norm, k), kHeads / kv_heads), wanted = Wanted(before, plan);
  for (size_t h = 0; h < kHeads; ++h)
    EXPECT_NEAR(after[h], wanted[h], 2e-5 * worst) << "head " << h << " seed " << seed;
  EXPECT_NEAR(*std::max_element(after.begin(), after.end()), worst * 0.8, 2e-5 * worst);
}

TEST(InvariantA, HoldsBehindEveryQueryKeyNorm) {
  for (uint64_t seed = 1; seed <= 8; ++seed)
    for (const bool unit_offset : {false, true}) {
      ExpectGainClip({ClipVariant::kLayerGain, 0.5, 1, kHeads, kHeads}, false, unit_offset, seed);
      ExpectGainClip({ClipVariant::kLayerGain, 0.5, 1, kHeads, 2}, false, unit_offset, seed);
      ExpectGainClip({ClipVariant::kMha, 0.5, 1, kHeads, kHeads}, true, unit_offset, seed);
      ExpectGainClip({ClipVariant::kGroupMin, 0.5, 1, kHeads, 2}, true, unit_offset, seed);
      ExpectGainClip({ClipVariant::kQOnly, 1, 1, kHeads, 2}, true, unit_offset, seed);
    }
}

TEST(QueryKeyNorm, MakesRowScalingTheWrongClip) {
  // methods.md §2.7: a silent no-op per head, and flattened it raises the others.
  testing::Lcg random(4);
  std::vector<Vector> q = Projected(kHeads, &random);
  const std::vector<Vector> k = Projected(kHeads, &random);
  for (const bool flattened : {false, true}) {
    const Norm q_norm(kHeads, flattened, false, &random), k_norm(kHeads, flattened, false, &random);
    Norm bare = q_norm;
    bare.bias.assign(bare.bias.size(), 0);
    const Vector before = Maxima(Through(bare, q), Through(k_norm, k), 1);
    std::vector<Vector> halved = q;
    for (Vector& token : halved)
      for (int i = 0; i < kHeadDim; ++i) token[static_cast<size_t>(i)] *= 0.5;
    const Vector after = Maxima(Through(bare, halved), Through(k_norm, k), 1);
    if (flattened) {
      EXPECT_GT(after[0] / before[0], 0.505);
      EXPECT_GT(after[1] / before[1], 1.02);
    } else {
      EXPECT_NEAR(after[0] / before[0], 1, 1e-12);
    }
  }
}

TEST(InvariantA, HoldsForMlaAndLeavesTheSharedRotaryKeyAlone) {
  constexpr int kNope = 6, kRope = 4;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    testing::Lcg random(seed);
    const auto make = [&](int width) {
      std::vector<Vector> tokens(kTokens, Vector(static_cast<size_t>(width)));
      for (Vector& token : tokens)
        for (double& x : token) x = 3 * random.Normal();
      return tokens;
    };
    std::vector<Vector> q_nope = make(kHeads * kNope), q_rope = make(kHeads * kRope), k_nope = make(kHeads * kNope);
    const std::vector<Vector> k_rope = make(kRope);  // One for all heads.
    const auto maxima = [&] {
      Vector out;
      for (size_t h = 0; h < kHeads; ++h) {
        double most = -HUGE_VAL;
        for (size_t t = 0; t < kTokens; ++t)
          for (size_t s = 0; s <= t; ++s)
            most = std::max(most, Dot(&q_nope[t][h * kNope], &k_nope[s][h * kNope], kNope) +
                                      Dot(&q_rope[t][h * kRope], k_rope[s].data(), kRope));
        out.push_back(most);
      }
      return out;
    };
    const Vector before = maxima();
    Vector sorted = before;
    std::sort(sorted.begin(), sorted.end());
    const double tau = (sorted[kHeads / 2 - 1] + sorted[kHeads / 2]) / 2;
    const ClipPlan plan = Plan({ClipVariant::kMla, 0.5, 1, kHeads, kHeads}, before, tau);
    ASSERT_EQ(plan.q.size(), plan.k.size());
    ASSERT_EQ(plan.q.size(), size_t{kHeads / 2});
    for (size_t i = 0; i < plan.q.size(); ++i) {
      const size_t h = plan.q[i].head;
      ASSERT_EQ(plan.k[i].head, h);
      for (size_t t = 0; t < kTokens; ++t) {
        for (size_t d = 0; d < kNope; ++d) {
          q_nope[t][h * kNope + d] *= plan.q[i].factor;
          k_nope[t][h * kNope + d] *= plan.k[i].factor;
        }
        for (size_t d = 0; d < kRope; ++d) q_rope[t][h * kRope + d] *= RopeFactor(plan.q[i].factor, plan.k[i].factor);
      }
    }
    const Vector after = maxima();
    for (size_t h = 0; h < kHeads; ++h) {
      if (before[h] > tau) {
        EXPECT_NEAR(after[h], tau, 2e-6 * tau) << "head " << h << " seed " << seed;
      } else {
        EXPECT_EQ(after[h], before[h]) << "a healthy head keeps its logits bit for bit";
      }
    }
  }
}

}  // namespace
}  // namespace gyrostat::remedy
