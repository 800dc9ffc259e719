#include "ctl/html.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gyrostat::ctl {
namespace {

TEST(Html, LeavesNothingThatIsMarkup) {
  EXPECT_EQ(Html("<script>alert(1)</script>"), "&lt;script&gt;alert(1)&lt;/script&gt;");
  EXPECT_EQ(Html("a\" onload='x' & b"), "a&quot; onload=&#39;x&#39; &amp; b");
  EXPECT_EQ(Html("run\xe2\x80\xae" "fdp.exe"), "run\\u{202e}fdp.exe");
  EXPECT_EQ(Html(std::string_view("a\0b\x1b[31m\xff", 9)), "a\\x00b\\x1b[31m\\xff");
  EXPECT_EQ(Html("schöner Lauf"), "schöner Lauf");
}

TEST(Base64, IsWhatBrowsersRead) {
  EXPECT_EQ(Base64(""), "");
  EXPECT_EQ(Base64("f"), "Zg==");
  EXPECT_EQ(Base64("fo"), "Zm8=");
  EXPECT_EQ(Base64("foo"), "Zm9v");
  EXPECT_EQ(Base64("\xff\xfe\xfd\xfc"), "//79/A==");
}

TEST(ShortNumber, KeepsFourDigitsInFewCharacters) {
  EXPECT_EQ(ShortNumber(0), "0");
  EXPECT_EQ(ShortNumber(2.7359), "2.736");
  EXPECT_EQ(ShortNumber(0.25468), "0.2547");
  EXPECT_EQ(ShortNumber(-12.5), "-12.5");
  EXPECT_EQ(ShortNumber(99999), "99999");
  EXPECT_EQ(ShortNumber(1248000), "1.248e6");
  EXPECT_EQ(ShortNumber(3e-4), "3e-4");
  EXPECT_EQ(ShortNumber(1e-300), "1e-300");
  EXPECT_EQ(ShortNumber(NAN), "NaN");
  EXPECT_EQ(ShortNumber(-INFINITY), "-Infinity");
}

TEST(Format, CutsWhatIsTooLong) { EXPECT_EQ(Format("%1000d", 1).size(), 511u); }

}  // namespace
}  // namespace gyrostat::ctl
