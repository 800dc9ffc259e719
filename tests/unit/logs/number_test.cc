#include "logs/number.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gyrostat::logs {
namespace {

double Of(std::string_view text) { return WholeNumber(text).value_or(-12345); }

TEST(Number, ReadsTheShapesOfLogs) {
  EXPECT_EQ(Of("1.217231E+01"), 12.17231);
  EXPECT_EQ(Of("4.0000e-05"), 4e-5);
  EXPECT_EQ(Of(" 794.0 "), 794);
  EXPECT_EQ(Of("-3"), -3);
  EXPECT_EQ(Of("+3"), 3);
  EXPECT_EQ(Of(".5"), 0.5);
  EXPECT_EQ(Of("35.6%"), 35.6);
  EXPECT_EQ(Of("2096039200817152.000"), 2096039200817152.0);
}

TEST(Number, ReadsCommasBetweenThousandsAndNowhereElse) {
  EXPECT_EQ(Of("195,153"), 195153);
  EXPECT_EQ(Of("1,234,567"), 1234567);
  size_t length = 0;
  EXPECT_EQ(NumberAt("9.65,100", &length), 9.65);
  EXPECT_EQ(NumberAt("12,34", &length), 12);
  EXPECT_EQ(length, 2u);
  EXPECT_EQ(NumberAt("1,2345", &length), 1);
}

TEST(Number, ReadsNanAndInfinityInAnyCase) {
  for (const char* text : {"nan", "NaN", "NAN", "-nan"}) EXPECT_TRUE(std::isnan(Of(text))) << text;
  for (const char* text : {"inf", "Inf", "INFINITY", "Infinity"}) EXPECT_EQ(Of(text), INFINITY) << text;
  EXPECT_EQ(Of("-inf"), -INFINITY);
  size_t length = 0;
  EXPECT_TRUE(std::isnan(*NumberAt("nanz)", &length)));
  EXPECT_FALSE(NumberAt("nano", &length));
  EXPECT_FALSE(NumberAt("info", &length));
}

TEST(Number, WhatIsTooLargeIsInfiniteAndWhatIsTooSmallIsNothing) {
  EXPECT_EQ(Of("1e999"), INFINITY);
  EXPECT_EQ(Of("-1e999"), -INFINITY);
  EXPECT_EQ(Of("1e-999"), 0);
}

TEST(Number, AWordOrHalfANumberIsNone) {
  for (const char* text : {"", "-", "abc", "1.2.3", "12 13", "0x10"}) EXPECT_FALSE(WholeNumber(text)) << text;
}

TEST(Number, AStepIsWholeAndBounded) {
  EXPECT_EQ(StepOf(794.0), 794);
  EXPECT_EQ(StepOf(-2), -2);
  EXPECT_FALSE(StepOf(0.5));
  EXPECT_FALSE(StepOf(NAN));
  EXPECT_FALSE(StepOf(INFINITY));
  EXPECT_FALSE(StepOf(1e300));
}

}  // namespace
}  // namespace gyrostat::logs
