#include "remedy/clip_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "remedy/qk_clip.h"
#include "support/lcg.h"

namespace gyrostat::remedy {
namespace {

using model::LedgerDelta;

TEST(ClipLedger, StartsAtZeroWithVersionZero) {
  const ClipLedger ledger(2, 3);
  EXPECT_EQ(ledger.version(), 0u);
  EXPECT_EQ(ledger.At(1, 2), 0);
  EXPECT_EQ(ledger.At(0, 1, 2), 0);
  EXPECT_EQ(ledger.Sparse().size(), 0u);
}

TEST(ClipLedger, MakesOneVersionPerChangeAndRemembersEach) {
  ClipLedger ledger(2, 3);
  ASSERT_TRUE(ledger.Apply({{0, 1}, {2, 0}, {10, 5}}));
  ASSERT_TRUE(ledger.Apply({{0}, {2}, {7}}));
  EXPECT_EQ(ledger.version(), 2u);
  EXPECT_EQ(ledger.At(0, 2), 17);
  EXPECT_EQ(ledger.At(0, 0, 2), 0);
  EXPECT_EQ(ledger.At(1, 0, 2), 10);
  EXPECT_EQ(ledger.At(2, 0, 2), 17);
  EXPECT_EQ(ledger.At(1, 1, 0), 5);
  EXPECT_EQ(ledger.At(3, 0, 2), std::nullopt) << "newer than now";
  std::vector<Ticks> lambda;
  ASSERT_TRUE(ledger.ReadAt(1, &lambda));
  EXPECT_EQ(lambda, (std::vector<Ticks>{0, 0, 10, 5, 0, 0}));
  EXPECT_FALSE(ledger.ReadAt(3, &lambda));
}

TEST(ClipLedger, TakesNoVersionForNothing) {
  ClipLedger ledger(1, 2);
  EXPECT_TRUE(ledger.Apply({}));
  EXPECT_TRUE(ledger.Apply({{0}, {1}, {0}}));
  EXPECT_EQ(ledger.version(), 0u);
}

TEST(ClipLedger, RefusesWhatIsForeignNegativeOrTooMuchAndChangesNothing) {
  ClipLedger ledger(1, 2);
  const Ticks most = std::numeric_limits<Ticks>::max();
  for (const LedgerDelta& bad :
       {LedgerDelta{{1}, {0}, {1}}, LedgerDelta{{0}, {2}, {1}}, LedgerDelta{{0, 0}, {0, 1}, {3, -1}},
        LedgerDelta{{0}, {0}, {most}}, LedgerDelta{{0, 0}, {0}, {1}}, LedgerDelta{{0, 0, 0}, {0, 1, 0}, {1, 1, 1}}}) {
    EXPECT_FALSE(ledger.Apply(bad));
    EXPECT_FALSE(ledger.Restore(9, bad));
  }
  ASSERT_TRUE(ledger.Apply({{0}, {0}, {ClipLedger::kLambdaMax}}));
  EXPECT_FALSE(ledger.Apply({{0, 0}, {0, 1}, {1, 1}}));
  EXPECT_EQ(ledger.version(), 1u);
  EXPECT_EQ(ledger.At(0, 1), 0);
}

TEST(ClipLedger, TakesEntriesInAnyOrder) {
  ClipLedger ledger(2, 2);
  ASSERT_TRUE(ledger.Apply({{1, 0, 1}, {1, 0, 1}, {3, 1, 4}}));
  EXPECT_EQ(ledger.At(1, 1), 7);
  EXPECT_EQ(ledger.At(0, 1, 1), 0);
  EXPECT_EQ(ledger.At(0, 0, 0), 0);
}

TEST(ClipLedger, ForgetsBeyondItsHistory) {
  ClipLedger ledger(1, 1);
  for (size_t i = 0; i < ClipLedger::kHistory + 10; ++i) ASSERT_TRUE(ledger.Apply({{0}, {0}, {1}}));
  EXPECT_EQ(ledger.At(9, 0, 0), std::nullopt);
  for (uint64_t version = 10; version <= ledger.version(); ++version)
    EXPECT_EQ(ledger.At(version, 0, 0), static_cast<Ticks>(version));
}

TEST(ClipLedger, RestoresReadingsWithoutAPast) {
  ClipLedger ledger(2, 2);
  ASSERT_TRUE(ledger.Apply({{0}, {0}, {5}}));
  ASSERT_TRUE(ledger.Restore(17, {{1}, {1}, {8}}));
  EXPECT_EQ(ledger.version(), 17u);
  EXPECT_EQ(ledger.At(0, 0), 0);
  EXPECT_EQ(ledger.At(17, 1, 1), 8);
  EXPECT_EQ(ledger.At(16, 1, 1), std::nullopt);
  EXPECT_EQ(ledger.Sparse(), (LedgerDelta{{1}, {1}, {8}}));
  ledger.Reset();
  EXPECT_EQ(ledger.version(), 0u);
  EXPECT_EQ(ledger.At(1, 1), 0);
}

TEST(ClipLedger, ComesBackFromBytesWithItsHistory) {
  ClipLedger ledger(2, 2);
  for (int i = 0; i < 70; ++i) ASSERT_TRUE(ledger.Apply({{i % 2u}, {i % 2u}, {i + 1}}));
  base::ByteWriter out;
  base::SaveTo(&out, ledger);
  base::ByteReader in(out.bytes());
  ClipLedger back;
  ASSERT_TRUE(base::LoadFrom(&in, &back));
  for (uint64_t version = 0; version <= 71; ++version) EXPECT_EQ(back.At(version, 1, 1), ledger.At(version, 1, 1));
  EXPECT_TRUE(back.Apply({{0}, {0}, {1}}));
}

TEST(ClipLedger, RefusesBytesCutAnywhereAndBytesThatLie) {
  ClipLedger ledger(1, 2);
  ASSERT_TRUE(ledger.Apply({{0}, {1}, {3}}));
  base::ByteWriter out;
  base::SaveTo(&out, ledger);
  for (size_t size = 0; size < out.bytes().size(); ++size) {
    base::ByteReader in(std::string_view(out.bytes()).substr(0, size));
    ClipLedger back;
    EXPECT_FALSE(base::LoadFrom(&in, &back)) << size;
  }
  std::string lie = out.bytes();
  lie[4] = 3;  // Heads.
  base::ByteReader in(lie);
  ClipLedger back;
  EXPECT_FALSE(base::LoadFrom(&in, &back));
}

// Invariants I2 and I3 of protocol.md §10: lambda never falls, and is the greatest of all targets that arrived, however
// orders are lost, repeated and reordered on their way.
TEST(ClipLedger, IsTheJoinOfTheTargetsThatArrived) {
  const ClipShape shape{.variant = model::ClipVariant::kMha, .split = 0.5, .layers = 2, .heads = 4, .kv_heads = 4};
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    testing::Lcg random(seed);
    std::vector<model::ClipEntry> sent;
    for (int i = 0; i < 40; ++i)
      sent.push_back({random.Below(2), random.Below(4), 0, static_cast<Ticks>(random.Below(5 * kTicksPerNat))});
    std::vector<model::ClipEntry> arrived;
    for (const model::ClipEntry& entry : sent)
      for (uint32_t copies = random.Below(4); copies > 0; --copies) arrived.push_back(entry);
    for (size_t i = arrived.size(); i > 1; --i)
      std::swap(arrived[i - 1], arrived[random.Below(static_cast<uint32_t>(i))]);

    ClipLedger ledger(2, 4);
    ClipPlan plan;
    std::map<std::pair<uint32_t, uint32_t>, Ticks> greatest;
    for (const model::ClipEntry& entry : arrived) {
      const Ticks before = ledger.At(entry.layer, entry.head);
      PlanClip(shape, {entry}, ledger, &plan);
      ASSERT_TRUE(ledger.Apply(plan.charged));
      EXPECT_GE(ledger.At(entry.layer, entry.head), before) << "seed " << seed;
      Ticks& most = greatest[{entry.layer, entry.head}];
      most = std::max(most, entry.target_ticks);
    }
    for (const auto& [place, most] : greatest) EXPECT_EQ(ledger.At(place.first, place.second), most) << "seed " << seed;
  }
}

}  // namespace
}  // namespace gyrostat::remedy
