#include "remedy/clip_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gyrostat::remedy {
namespace {

using model::ClipVariant;

std::vector<ClipRow> Table(const std::vector<double>& maxima, double tau, uint32_t kv_heads, ClipVariant variant) {
  std::string why;
  const auto rows = ClipTable(maxima, tau, kv_heads, variant, &why);
  EXPECT_TRUE(rows) << why;
  return rows.value_or(std::vector<ClipRow>{});
}

std::string Why(const std::vector<double>& maxima, double tau, uint32_t kv_heads, ClipVariant variant) {
  std::string why;
  EXPECT_FALSE(ClipTable(maxima, tau, kv_heads, variant, &why));
  return why;
}

TEST(ClipTable, SharesTheFactorBetweenQueryAndKey) {
  const auto rows = Table({120, 30, -5}, 30, 0, ClipVariant::kMha);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].gamma, 0.25);
  EXPECT_EQ(rows[0].q, 0.5);
  EXPECT_EQ(rows[0].k, 0.5);
  EXPECT_EQ(rows[1].gamma, 1);
  EXPECT_EQ(rows[2].gamma, 1);
  EXPECT_EQ(rows[2].q, 1);
  EXPECT_EQ(rows[2].max, -5);
}

TEST(ClipTable, ShrinksAWholeGroupByItsWorstHead) {
  const auto rows = Table({81.5, 758, 40, 50}, 100, 2, ClipVariant::kGroupMin);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].gamma, 1) << "its own";
  EXPECT_NEAR(81.5 * rows[0].q * rows[0].k, 10.75, 0.01);
  EXPECT_NEAR(758 * rows[1].q * rows[1].k, 100, 1e-9);
  EXPECT_EQ(rows[2].q, 1);
  EXPECT_EQ(rows[3].k, 1);
}

TEST(ClipTable, LeavesKeysAloneWithQueryOnly) {
  const auto rows = Table({81.5, 758}, 100, 1, ClipVariant::kQOnly);
  EXPECT_EQ(rows[0].q, 1);
  EXPECT_NEAR(rows[1].q, 100.0 / 758, 1e-15);
  EXPECT_EQ(rows[1].k, 1);
}

TEST(ClipTable, GivesAnMlaHeadsRotaryRowsTheWholeFactor) {
  const auto rows = Table({81.5, 400}, 100, 1, ClipVariant::kMla);
  EXPECT_EQ(rows[0].q, 1) << "heads are on their own, whatever key heads are declared";
  EXPECT_EQ(rows[0].q_rope, 1);
  EXPECT_EQ(rows[1].q, 0.5);
  EXPECT_EQ(rows[1].k, 0.5);
  EXPECT_EQ(rows[1].q_rope, 0.25);
}

TEST(ClipTable, GivesALayerOneFactorBehindAPerHeadNorm) {
  const auto rows = Table({81.5, 400, 7, std::nan("")}, 100, 2, ClipVariant::kLayerGain);
  for (const ClipRow& row : rows) {
    EXPECT_EQ(row.q, 0.5);
    EXPECT_EQ(row.k, 0.5);
  }
  EXPECT_EQ(rows[0].gamma, 1) << "its own";
}

TEST(ClipTable, NeverClipsAHeadThatIsNotFinite) {
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    const auto rows = Table({bad, 60}, 30, 0, ClipVariant::kMha);
    EXPECT_EQ(rows[0].gamma, std::nullopt);
    EXPECT_EQ(rows[0].q, 1);
    EXPECT_EQ(rows[1].gamma, 0.5);
  }
}

TEST(ClipTable, SaysWhatIsWrongWithItsArguments) {
  EXPECT_EQ(Why({}, 30, 0, ClipVariant::kMha), "0 maxima, wanted 1 to 1024");
  EXPECT_EQ(Why({1}, 0, 0, ClipVariant::kMha), "tau is 0.000000, wanted a finite number above 0");
  EXPECT_EQ(Why({1, 2, 3}, 30, 2, ClipVariant::kGroupMin), "2 key heads for 3 heads, wanted a divisor");
  EXPECT_EQ(Why({1, 2}, 30, 1, ClipVariant::kMha),
            "variant mha with 1 key heads for 2 heads, wanted as many, or variant group_min or q_only");
}

}  // namespace
}  // namespace gyrostat::remedy
