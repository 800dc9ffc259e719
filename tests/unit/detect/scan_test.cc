#include "detect/scan.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace gyrostat::detect {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Scan, MaximumIsFoundAtEveryPlaceAndLength) {
  for (size_t size = 1; size < 70; ++size) {
    for (size_t at = 0; at < size; ++at) {
      std::vector<float> values(size, -5.f);
      values[at] = -1.f;
      ASSERT_EQ(MaxFinite(values), -1.f);
      ASSERT_EQ(IndexOf(values, -1.f), at);
    }
  }
}

// Long arrays are looked at block by block.
TEST(Scan, LongArraysAreReadToTheirEnd) {
  for (const size_t size : {256u, 257u, 700u, 1024u}) {
    for (size_t at = 0; at < size; ++at) {
      std::vector<float> values(size, -5.f);
      values[at] = -1.f;
      ASSERT_EQ(IndexOf(values, -1.f), at) << size;
      ASSERT_EQ(IndexOf(values, -2.f), size);
      values[at] = -kInf;
      const Nonfinite count = CountNonfinite(values);
      ASSERT_EQ(count.minus_inf, 1u) << at << " of " << size;
      ASSERT_EQ(count.nan + count.plus_inf, 0u);
    }
  }
}

TEST(Scan, WhatIsNotFiniteOrNotMeasuredNeverWins) {
  EXPECT_EQ(MaxFinite(std::vector<float>{kNan, 3, kInf, -kInf, model::kAbsent}), 3);
  EXPECT_EQ(MaxFinite(std::vector<float>{kNan, kInf, model::kAbsent}), model::kAbsent);
  EXPECT_EQ(MaxFinite({}), model::kAbsent);
}

TEST(Scan, CountsEachKindOfNonFinite) {
  const Nonfinite count = CountNonfinite(std::vector<float>{1, kNan, -kNan, kInf, -kInf, -kInf, model::kAbsent, 3e38f});
  EXPECT_EQ(count.nan, 2u);
  EXPECT_EQ(count.plus_inf, 1u);
  EXPECT_EQ(count.minus_inf, 2u);
}

}  // namespace
}  // namespace gyrostat::detect
