#include "base/text.h"

#include <gtest/gtest.h>

#include <string>

namespace gyrostat::base {
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

}  // namespace
}  // namespace gyrostat::base
