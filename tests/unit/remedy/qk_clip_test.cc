#include "remedy/qk_clip.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "support/lcg.h"

namespace gyrostat::remedy {
namespace {

using model::ClipEntry;
using model::ClipVariant;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

ClipShape Mha(uint32_t layers, uint32_t heads) { return {ClipVariant::kMha, 0.5, layers, heads, heads}; }

TEST(Gamma, IsTauOverTheMaximumAndNeverAboveOne) {
  EXPECT_EQ(Gamma(200, 100), 0.5);
  EXPECT_EQ(Gamma(100, 100), 1.0);
  EXPECT_EQ(Gamma(std::nextafter(100, 101), 100), 100 / std::nextafter(100, 101));
  for (const double harmless : {99.0, 0.0, -0.0, -5.0, -1e30}) EXPECT_EQ(Gamma(harmless, 100), 1.0) << harmless;
}

TEST(Gamma, SaysNothingOfWhatIsNotFinite) {
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    EXPECT_EQ(Gamma(bad, 100), std::nullopt);
    EXPECT_EQ(Gamma(200, bad), std::nullopt);
  }
  EXPECT_EQ(Gamma(200, 0), std::nullopt);
  EXPECT_EQ(Gamma(200, -1), std::nullopt);
}

TEST(ClipTarget, AddsTheExcessToTheLedgerOfItsForward) {
  EXPECT_EQ(ClipTarget(60, 30, 1000), 1000 + LnTicks(2));
  EXPECT_EQ(ClipTarget(30, 30, 1000), std::nullopt);
  EXPECT_EQ(ClipTarget(std::nextafter(30, 31), 30, 1000), 1000) << "below half a tick";
}

TEST(ClipTarget, AsksForAFactorOfTenAtMost) {
  EXPECT_EQ(ClipTarget(300, 30, 5), 5 + kClipTicksMax);
  EXPECT_EQ(ClipTarget(1e30, 30, 5), 5 + kClipTicksMax);
  EXPECT_EQ(ClipTarget(1e300, 1e-300, 5), 5 + kClipTicksMax);
}

TEST(ClipTarget, NeedsAFiniteMaximumAboveAPositiveTau) {
  for (const double bad : {kNan, kInfinity, -kInfinity, -40.0, 0.0, 29.0})
    EXPECT_EQ(ClipTarget(bad, 30, 0), std::nullopt);
  for (const double bad : {kNan, 0.0, -1.0}) EXPECT_EQ(ClipTarget(60, bad, 0), std::nullopt);
}

TEST(ClipThreshold, KeepsOutOfTheDeadBandWithoutAMaster) {
  EXPECT_EQ(ClipThreshold(100, ClipVariant::kMha, true), 100);
  EXPECT_EQ(ClipThreshold(100, ClipVariant::kMha, false), 102);
  EXPECT_EQ(ClipThreshold(100, ClipVariant::kGroupMin, false), 102);
  EXPECT_EQ(ClipThreshold(100, ClipVariant::kQOnly, false), 101);
}

TEST(PlanClip, SplitsAFactorBetweenQueryAndKey) {
  ClipLedger ledger(1, 2);
  ClipPlan plan;
  PlanClip(Mha(1, 2), {{0, 1, 60, *ClipTarget(60, 30, 0)}}, ledger, &plan);
  ASSERT_EQ(plan.q.size(), 1u);
  ASSERT_EQ(plan.k.size(), 1u);
  EXPECT_EQ(plan.q[0].head, 1u);
  EXPECT_EQ(plan.k[0].head, 1u);
  EXPECT_NEAR(plan.q[0].factor, std::sqrt(0.5), 1e-6);
  EXPECT_NEAR(double{plan.q[0].factor} * plan.k[0].factor, 0.5, 1e-6);
  EXPECT_EQ(plan.charged, (model::LedgerDelta{{0}, {1}, {LnTicks(2)}}));
}

TEST(PlanClip, ClipsOnceForOneMeasurement) {
  // Two decisions computed from the same maximum of 200 would give 50 instead of 100 if they multiplied.
  ClipLedger ledger(1, 1);
  ClipPlan plan;
  const std::vector<ClipEntry> order = {{0, 0, 200, *ClipTarget(200, 100, 0)}};
  PlanClip(Mha(1, 1), order, ledger, &plan);
  ASSERT_TRUE(ledger.Apply(plan.charged));
  PlanClip(Mha(1, 1), order, ledger, &plan);
  EXPECT_TRUE(plan.q.empty());
  EXPECT_TRUE(plan.k.empty());
  EXPECT_EQ(plan.charged.size(), 0u);
}

TEST(PlanClip, AddsOnlyWhatAnEarlierOrderLeft) {
  ClipLedger ledger(1, 1);
  ASSERT_TRUE(ledger.Apply({{0}, {0}, {LnTicks(2)}}));
  ClipPlan plan;
  PlanClip(Mha(1, 1), {{0, 0, 0, LnTicks(2) + 7}}, ledger, &plan);
  EXPECT_EQ(plan.charged.ticks, (std::vector<Ticks>{7}));
}

TEST(PlanClip, TakesTheLargestDeltaForAWholeGroup) {
  const ClipShape shape{ClipVariant::kGroupMin, 0.5, 2, 4, 2};
  ClipLedger ledger(2, 4);
  ClipPlan plan;
  // methods.md §2.2: a healthy head at 81.5 ends at 10.8 because a group mate was at 758.
  PlanClip(shape, {{1, 2, 758, *ClipTarget(758, 100, 0)}}, ledger, &plan);
  ASSERT_EQ(plan.q.size(), 2u);
  EXPECT_EQ(plan.q[0].head, 2u);
  EXPECT_EQ(plan.q[1].head, 3u);
  ASSERT_EQ(plan.k.size(), 1u);
  EXPECT_EQ(plan.k[0].layer, 1u);
  EXPECT_EQ(plan.k[0].head, 1u);
  EXPECT_NEAR(81.5 * plan.q[1].factor * plan.k[0].factor, 10.8, 0.05);
  EXPECT_EQ(plan.charged.head, (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(plan.charged.ticks[0], plan.charged.ticks[1]);
}

TEST(PlanClip, TouchesNoHealthyHeadWithQueryOnly) {
  const ClipShape shape{ClipVariant::kQOnly, 1, 1, 4, 1};
  ClipPlan plan;
  PlanClip(shape, {{0, 2, 758, *ClipTarget(758, 100, 0)}}, ClipLedger(1, 4), &plan);
  ASSERT_EQ(plan.q.size(), 1u);
  EXPECT_NEAR(plan.q[0].factor, 100.0 / 758, 1e-6);
  EXPECT_TRUE(plan.k.empty());
  EXPECT_EQ(plan.charged.head, (std::vector<uint32_t>{2}));
}

TEST(PlanClip, KeepsTheOrderOfLayersAndHeadsWhateverTheOrderOfEntries) {
  ClipPlan plan;
  PlanClip(Mha(2, 2), {{1, 1, 0, 10}, {0, 0, 0, 20}, {1, 0, 0, 30}, {0, 0, 0, 5}, {9, 9, 0, 99}}, ClipLedger(2, 2),
           &plan);
  EXPECT_EQ(plan.charged, (model::LedgerDelta{{0, 1, 1}, {0, 0, 1}, {20, 30, 10}}));
}

TEST(PlanClip, CutsOddTicksIntoFactorsThatMultiplyToTheWhole) {
  ClipPlan plan;
  for (const double split : {0.0, 0.3, 0.5, 1.0}) {
    for (const Ticks delta : {Ticks{1}, Ticks{3}, Ticks{1001}, kClipTicksMax}) {
      PlanClip({ClipVariant::kMha, split, 1, 1, 1}, {{0, 0, 0, delta}}, ClipLedger(1, 1), &plan);
      const double q = plan.q.empty() ? 1 : plan.q[0].factor, k = plan.k.empty() ? 1 : plan.k[0].factor;
      EXPECT_NEAR(q * k / ExpMinus(delta), 1, 1e-7) << split << " " << delta;
    }
  }
}

TEST(PlanClip, NeverLeavesTheUnitIntervalWhateverItIsTold) {
  testing::Lcg random(3);
  const double strange[] = {kNan, kInfinity, -kInfinity, -1e30, -1, 0, 1e-30, 29.999, 30.001, 45, 1e9, 3e38};
  for (int i = 0; i < 2000; ++i) {
    const ClipVariant variant = std::array{ClipVariant::kMha, ClipVariant::kGroupMin, ClipVariant::kQOnly,
                                           ClipVariant::kMla, ClipVariant::kLayerGain}[random.Below(5)];
    const ClipShape shape{variant, variant == ClipVariant::kQOnly ? 1 : 0.5, 1, 4,
                          variant == ClipVariant::kMha ? 4u : 2u};
    ClipLedger ledger(1, 4);
    ASSERT_TRUE(ledger.Apply({{0}, {random.Below(4)}, {random.Below(3000000)}}));
    std::vector<ClipEntry> entries;
    for (uint32_t head = 0; head < 4; ++head)
      if (const auto target = ClipTarget(strange[random.Below(12)], 30, random.Below(3000000)))
        entries.push_back({0, head, 0, *target});
    ClipPlan plan;
    PlanClip(shape, entries, ledger, &plan);
    for (const auto* side : {&plan.q, &plan.k})
      for (const HeadFactor& head : *side) {
        EXPECT_GT(head.factor, 0);
        EXPECT_LT(head.factor, 1);
      }
    for (const Ticks ticks : plan.charged.ticks) EXPECT_GT(ticks, 0);
  }
  ClipPlan plan;
  PlanClip(Mha(1, 1), {{0, 0, 0, std::numeric_limits<Ticks>::min()}}, ClipLedger(1, 1), &plan);
  EXPECT_TRUE(plan.q.empty());
  PlanClip(Mha(1, 1), {{0, 0, 0, std::numeric_limits<Ticks>::max()}}, ClipLedger(1, 1), &plan);
  ASSERT_EQ(plan.q.size(), 1u);
  EXPECT_LT(plan.q[0].factor, 1);
}

model::ModelSpec Spec(model::Attention attention, uint32_t heads, uint32_t kv_heads) {
  model::ModelSpec spec;
  spec.layers = 2;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.attention = attention;
  spec.qk_norm = model::QkNorm::kNone;
  return spec;
}

TEST(ShapeFor, GivesEachAttentionItsVariantAndSplit) {
  struct Case {
    model::Attention attention;
    uint32_t kv_heads;
    model::QkNorm norm;
    ClipVariant wanted, variant;
    double split;
    uint32_t group;
  };
  using A = model::Attention;
  using N = model::QkNorm;
  using V = ClipVariant;
  const Case cases[] = {
      {A::kMha, 0, N::kNone, V::kQOnly, V::kMha, 0.5, 1},
      {A::kGqa, 2, N::kNone, V::kGroupMin, V::kGroupMin, 0.5, 4},
      {A::kMqa, 1, N::kNone, V::kQOnly, V::kQOnly, 1, 8},
      {A::kMla, 0, N::kNone, V::kGroupMin, V::kMla, 0.5, 1},
      {A::kMla, 1, N::kNone, V::kQOnly, V::kMla, 0.5, 1},
      {A::kMha, 0, N::kFlattened, V::kGroupMin, V::kMha, 0.5, 1},
      {A::kGqa, 2, N::kFlattened, V::kGroupMin, V::kGroupMin, 0.5, 4},
      {A::kGqa, 2, N::kFlattened, V::kQOnly, V::kQOnly, 1, 4},
      {A::kMha, 0, N::kPerHead, V::kGroupMin, V::kLayerGain, 0.5, 8},
      {A::kGqa, 2, N::kPerHead, V::kQOnly, V::kLayerGain, 0.5, 8},
  };
  for (const Case& each : cases) {
    model::ModelSpec spec = Spec(each.attention, 8, each.kv_heads);
    spec.qk_norm = each.norm;
    std::string why;
    const auto shape = ShapeFor(spec, each.wanted, &why);
    ASSERT_TRUE(shape) << why;
    EXPECT_EQ(shape->variant, each.variant);
    EXPECT_EQ(shape->split, each.split);
    EXPECT_EQ(shape->GroupHeads(), each.group);
  }
}

TEST(ShapeFor, SaysWhyAModelCannotBeClipped) {
  const auto why_of = [](const model::ModelSpec& spec, ClipVariant wanted = ClipVariant::kGroupMin) {
    std::string why;
    EXPECT_FALSE(ShapeFor(spec, wanted, &why));
    return why;
  };
  EXPECT_EQ(why_of(Spec(model::Attention::kUnknown, 8, 0)),
            "the model does not say which attention it has, wanted mha, gqa, mqa or mla");
  EXPECT_EQ(why_of(Spec(model::Attention::kMha, 8, 2)), "attention is mha with 2 key heads, wanted 8");
  EXPECT_EQ(why_of(Spec(model::Attention::kGqa, 8, 3)), "attention is gqa with 3 key heads, wanted a divisor of 8");
  EXPECT_EQ(why_of(Spec(model::Attention::kGqa, 8, 0)), "attention is gqa with 0 key heads, wanted a divisor of 8");
  EXPECT_EQ(why_of(Spec(model::Attention::kMqa, 8, 2)), "attention is mqa with 2 key heads, wanted 1");
  for (const ClipVariant wanted : {ClipVariant::kMha, ClipVariant::kMla, ClipVariant::kLayerGain})
    EXPECT_EQ(why_of(Spec(model::Attention::kGqa, 8, 2), wanted),
              std::string("variant ") + model::Token(wanted) +
                  " cannot clip grouped keys, wanted group_min or q_only");
  EXPECT_EQ(why_of(Spec(model::Attention::kMha, 0, 0)),
            "the model has 2 layers and 0 heads, wanted both known and at most 1024");
  model::ModelSpec spec = Spec(model::Attention::kMla, 8, 0);
  spec.qk_norm = model::QkNorm::kPerHead;
  EXPECT_EQ(why_of(spec),
            "attention is mla with qk_norm per_head, which nobody knows how to clip, wanted qk_norm none");
  spec.qk_norm = model::QkNorm::kUnknown;
  EXPECT_EQ(why_of(spec),
            "the model does not say whether queries and keys are normalized, wanted qk_norm none, per_head or "
            "flattened");
}

TEST(PlanClip, GivesALayerOneFactorBehindAPerHeadNorm) {
  const ClipShape shape{ClipVariant::kLayerGain, 0.5, 2, 4, 2};
  ClipPlan plan;
  PlanClip(shape, {{1, 0, 200, *ClipTarget(200, 100, 0)}, {1, 3, 400, *ClipTarget(400, 100, 0)}}, ClipLedger(2, 4),
           &plan);
  ASSERT_EQ(plan.q.size(), 4u);
  ASSERT_EQ(plan.k.size(), 1u);
  EXPECT_EQ(plan.k[0].layer, 1u);
  EXPECT_EQ(plan.k[0].head, 0u);
  for (uint32_t head = 0; head < 4; ++head) {
    EXPECT_EQ(plan.q[head].head, head);
    EXPECT_EQ(plan.q[head].factor, plan.q[0].factor);
    EXPECT_NEAR(double{plan.q[head].factor} * plan.k[0].factor, 0.25, 1e-6);
    EXPECT_EQ(plan.charged.ticks[head], LnTicks(4)) << "all heads of the layer shrink";
  }
}

TEST(PlanClip, GivesAnMlaHeadFactorsOfItsOwn) {
  const ClipShape shape{ClipVariant::kMla, 0.5, 1, 4, 1};  // Whatever key heads the job may have declared.
  ClipPlan plan;
  PlanClip(shape, {{0, 2, 400, *ClipTarget(400, 100, 0)}}, ClipLedger(1, 4), &plan);
  ASSERT_EQ(plan.q.size(), 1u);
  ASSERT_EQ(plan.k.size(), 1u);
  EXPECT_EQ(plan.k[0].head, 2u);
  EXPECT_NEAR(plan.q[0].factor, 0.5, 1e-6);
  EXPECT_NEAR(plan.k[0].factor, 0.5, 1e-6);
  EXPECT_NEAR(RopeFactor(plan.q[0].factor, plan.k[0].factor), 0.25, 1e-6);
  EXPECT_EQ(plan.charged, (model::LedgerDelta{{0}, {2}, {LnTicks(4)}}));
}

TEST(RopeFactor, StaysInTheUnitInterval) {
  const float least = std::numeric_limits<float>::min();
  EXPECT_EQ(RopeFactor(0.75f, 0.5f), 0.375f);
  EXPECT_EQ(RopeFactor(1, 1), 1);
  EXPECT_GT(RopeFactor(least, least), 0);
}

TEST(ScaledUnitOffset, ScalesTheEffectiveGain) {
  EXPECT_EQ(ScaledUnitOffset(0, 0.5f), -0.5f);
  EXPECT_EQ(ScaledUnitOffset(1, 0.5f), 0);
  testing::Lcg random(5);
  for (int i = 0; i < 1000; ++i) {
    const auto w = static_cast<float>(random.Normal());
    const auto f = static_cast<float>(0.1 + 0.9 * random.Uniform());
    EXPECT_NEAR(1 + double{ScaledUnitOffset(w, f)}, double{f} * (1 + double{w}), 2e-7 * (1 + std::fabs(w)));
  }
  EXPECT_EQ(ScaledUnitOffset(1e-9f, 1), 1e-9f) << "small gains keep their bits";
}

TEST(CheckMaxima, TakesOnlyWhatTheSoftmaxReallySees) {
  model::AttnLogitInfo info{.kind = model::LogitKind::kExact, .scaled = true, .masked = true};
  EXPECT_EQ(CheckMaxima(info, false), "");
  info.kind = model::LogitKind::kLseUpper;
  EXPECT_EQ(CheckMaxima(info, false), "");
  EXPECT_EQ(CheckMaxima(info, true),
            "the attention maxima are taken after the soft-cap, where they saturate, wanted before");
  info.pre_cap = true;
  EXPECT_EQ(CheckMaxima(info, true), "");
  info.masked = false;
  EXPECT_EQ(CheckMaxima(info, false), "the attention maxima are unmasked, wanted what the softmax sees");
  info.scaled = false;
  EXPECT_EQ(CheckMaxima(info, false), "the attention maxima are unscaled, wanted what the softmax sees");
  info.kind = model::LogitKind::kNormProduct;
  EXPECT_EQ(CheckMaxima(info, false), "the attention maxima are of kind norm_product, wanted exact or lse_upper");
  info.kind = model::LogitKind::kUnknown;
  EXPECT_EQ(CheckMaxima(info, false), "the attention maxima are of kind unknown, wanted exact or lse_upper");
}

}  // namespace
}  // namespace gyrostat::remedy
