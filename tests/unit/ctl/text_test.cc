#include "ctl/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace gyrostat::ctl {
namespace {

TEST(Escape, LeavesPrintableUtf8Alone) { EXPECT_EQ(Escape("run-1 λ=½ 層"), "run-1 λ=½ 層"); }

TEST(Escape, MakesControlCharactersVisible) {
  EXPECT_EQ(Escape("a\x1b[2Jb\nc\x7f\r\t"), "a\\x1b[2Jb\\x0ac\\x7f\\x0d\\x09");
  EXPECT_EQ(Escape(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(Escape("\xc2\x9b"), "\\u{9b}");  // C1: CSI as one character.
}

TEST(Escape, MakesMarksThatReorderTextVisible) {
  EXPECT_EQ(Escape("safe\u202eevil\u200b\ufeff"), "safe\\u{202e}evil\\u{200b}\\u{feff}");
}

TEST(Escape, WritesBytesThatAreNoUtf8InHex) {
  EXPECT_EQ(Escape("\xff"), "\\xff");
  EXPECT_EQ(Escape("\xc0\xaf"), "\\xc0\\xaf");          // Overlong slash.
  EXPECT_EQ(Escape("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // Surrogate.
  EXPECT_EQ(Escape("\xe2\x82"), "\\xe2\\x82");           // Cut short.
  EXPECT_EQ(Escape("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // Above U+10FFFF.
}

TEST(Cut, CountsColumnsNotBytes) {
  Style style;
  EXPECT_EQ(Cut(style, "λλλλ", 4), "λλλλ");
  EXPECT_EQ(Cut(style, "λλλλλ", 4), "λλλ…");
  style.unicode = false;
  EXPECT_EQ(Cut(style, "abcdefgh", 6), "abc...");
  EXPECT_EQ(Cut(style, "anything", 0), "anything");
}

TEST(Number, HasSixDigitsAndNamesWhatIsNotFinite) {
  EXPECT_EQ(Number(0.1), "0.1");
  EXPECT_EQ(Number(123456789.0), "1.23457e+08");
  EXPECT_EQ(Number(-0.00012345678), "-0.000123457");
  EXPECT_EQ(Number(NAN), "NaN");
  EXPECT_EQ(Number(INFINITY), "Infinity");
  EXPECT_EQ(Number(-INFINITY), "-Infinity");
}

TEST(Rfc3339, IsUtcWithMilliseconds) {
  EXPECT_EQ(Rfc3339(1767225600250), "2026-01-01T00:00:00.250Z");
  EXPECT_EQ(Rfc3339(-1), "1969-12-31T23:59:59.999Z");
  EXPECT_EQ(Rfc3339(0), "");
}

TEST(Ago, GrowsFromSecondsToDays) {
  constexpr int64_t kNow = 1767225600000;
  EXPECT_EQ(Ago(kNow, 0), "never");
  EXPECT_EQ(Ago(kNow, kNow), "just now");
  EXPECT_EQ(Ago(kNow, kNow + 5000), "just now");
  EXPECT_EQ(Ago(kNow, kNow - 119000), "119 s ago");
  EXPECT_EQ(Ago(kNow, kNow - 120000), "2 min ago");
  EXPECT_EQ(Ago(kNow, kNow - 7200000), "2 h ago");
  EXPECT_EQ(Ago(kNow, kNow - 3 * 86400000), "3 d ago");
}

TEST(Ago, SurvivesAnyNumberFromTheWire) {
  EXPECT_EQ(Ago(1767225600000, 1767225600000 + 3600000), "2026-01-01T01:00:00.000Z");
  Ago(std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min());
  Ago(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
}

TEST(Sparkline, SpansLowestToHighest) {
  Style style;
  const std::vector<double> values = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(Sparkline(style, values, 8), "▁▂▃▄▅▆▇█");
  style.unicode = false;
  EXPECT_EQ(Sparkline(style, values, 8), "_.:-=+*#");
}

TEST(Sparkline, AOneStepSpikeSurvivesNarrowing) {
  std::vector<double> values(100, 1.0);
  values[57] = 50;
  EXPECT_NE(Sparkline({}, values, 10).find("█"), std::string::npos);
}

TEST(Sparkline, MarksWhatIsNotFiniteAndNeverDividesByZero) {
  EXPECT_EQ(Sparkline({}, std::vector<double>{1, NAN, 2}, 3), "▁x█");
  EXPECT_EQ(Sparkline({}, std::vector<double>{5, 5}, 10), "▁▁");
  EXPECT_EQ(Sparkline({}, std::vector<double>{INFINITY}, 10), "x");
  EXPECT_EQ(Sparkline({}, {}, 10), "");
  EXPECT_EQ(Sparkline({}, std::vector<double>{1, 2}, 0), "");
  const double huge = std::numeric_limits<double>::max();
  EXPECT_EQ(Sparkline({}, std::vector<double>{-huge, huge}, 2), "▁█");
}

TEST(Table, AlignsAndEndsNoLineInBlanks) {
  Table table({{"NAME"}, {"N", true}, {"LAST"}});
  table.Row({{"a"}, {"1"}, {"x"}});
  table.Row({{"long"}, {"100"}, {""}});
  EXPECT_EQ(table.Render({}), "NAME    N  LAST\n"
                              "a       1  x\n"
                              "long  100\n");
}

TEST(Table, EscapesEveryCellAndNote) {
  Table table({{"NAME"}});
  table.Row({{"a\nforged"}}, "note\x1b[31m");
  EXPECT_EQ(table.Render({}), "NAME\na\\x0aforged\n    note\\x1b[31m\n");
}

TEST(Table, ColoursOnlyWhereTheStyleHasColour) {
  Style style;
  Table table({{"NAME"}});
  table.Row({{"bad", Tint::kBad}});
  EXPECT_EQ(table.Render(style).find('\x1b'), std::string::npos);
  style.colour = true;
  EXPECT_NE(table.Render(style).find("\x1b[31mbad\x1b[0m"), std::string::npos);
}

TEST(Wrap, BreaksAtBlanksWithinTheWidth) {
  Style style;
  style.columns = 30;
  EXPECT_EQ(Wrap(style, "one two three four five six seven", 4),
            "    one two three four five\n"
            "    six seven\n");
  style.columns = 0;
  EXPECT_EQ(Wrap(style, "one two", 2), "  one two\n");
  EXPECT_EQ(Wrap(style, "", 2), "");
}

}  // namespace
}  // namespace gyrostat::ctl
