#include "rpc/text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gyrostat::rpc {
namespace {

TEST(CleanText, ReplacesWhatWouldMoveATerminalsCursor) {
  EXPECT_EQ(CleanText(std::string("a\x1b[2J\r\n\0b\x7f", 10), 100), "a?[2J???b?");
  EXPECT_EQ(CleanText("größer", 100), "größer");
}

TEST(CleanText, CutsBetweenCharacters) {
  EXPECT_EQ(CleanText("abc", 3), "abc");
  EXPECT_EQ(CleanText("abcd", 3), "abc");
  EXPECT_EQ(CleanText("aé", 2), "a");  // é has two bytes.
  EXPECT_EQ(CleanText("\xBF\xBF\xBF", 2), "");  // No character begins anywhere.
}

TEST(Quoted, ShowsThatItWasCut) {
  EXPECT_EQ(Quoted("run"), "\"run\"");
  EXPECT_EQ(Quoted(std::string(70, 'x')), "\"" + std::string(64, 'x') + "…\"");
}

TEST(NumberText, IsShort) {
  EXPECT_EQ(NumberText(0.1), "0.1");
  EXPECT_EQ(NumberText(1e300), "1e+300");
  EXPECT_EQ(NumberText(NAN), "nan");
}

}  // namespace
}  // namespace gyrostat::rpc
