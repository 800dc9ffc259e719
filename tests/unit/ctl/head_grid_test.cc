#include "ctl/head_grid.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

namespace gyrostat::ctl {
namespace {

constexpr float kAbsent = -FLT_MAX;

// Without escape sequences.
std::string Bare(const std::string& line) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') i = line.find('m', i);
    else out += line[i];
  }
  return out;
}

Style Window(size_t columns, bool colour = false) {
  Style style;
  style.columns = columns;
  style.colour = colour;
  return style;
}

TEST(HeadGrid, DrawsEachHeadWhereAllFit) {
  const std::vector<float> values = {0, 10, 20, 30, 40, 50, kAbsent, NAN};
  EXPECT_EQ(DrawGrid(Window(80), {2, values, 40}, 10),
            (std::vector<std::string>{
                "max logit, 2 layers down, 4 heads across",
                "L0     ::::====****",
                "L1 ####!!!!....xxxx",
                "0 [ `:-=+*#] 40 = tau   worst L1H1 50   ! over tau: 1 head   x not finite: 1",
            }));
}

TEST(HeadGrid, TakesHeadsTogetherByTheirLargestAndTellsTheScale) {
  std::vector<float> values(128 * 128, 1);
  values[77 * 128 + 100] = 200;
  const auto lines = DrawGrid(Window(80), {128, values, 100}, 12);
  ASSERT_EQ(lines.size(), 12u);
  EXPECT_EQ(lines[0], "max logit, 128 layers down, 128 heads across; a cell: the largest of 13 x 2");
  size_t marks = 0;
  for (size_t row = 1; row + 1 < lines.size(); ++row)
    for (const char each : lines[row]) marks += each == '!' ? 1 : 0;
  EXPECT_EQ(marks, 1u);
  EXPECT_EQ(lines[6].substr(0, 5), "L65  ");  // Layers 65 to 77.
  EXPECT_EQ(lines[6].find('!'), 5 + 100 / 2u);
  EXPECT_NE(lines.back().find("worst L77H100 200   ! over tau: 1 head"), std::string::npos);
}

TEST(HeadGrid, FitsEveryWindow) {
  for (const size_t layers : {1u, 3u, 12u, 128u}) {
    for (const size_t heads : {1u, 7u, 64u, 128u}) {
      std::vector<float> values;
      for (size_t i = 0; i < layers * heads; ++i) values.push_back(static_cast<float>(i % 97) * 1.7f);
      for (const bool colour : {false, true})
        for (const size_t columns : {10u, 20u, 79u, 200u})
          for (const size_t rows : {0u, 3u, 4u, 9u, 60u, 300u}) {
            const auto lines = DrawGrid(Window(columns, colour), {layers, values, 100}, rows);
            EXPECT_LE(lines.size(), rows);
            EXPECT_EQ(lines.empty(), rows < 4);
            for (const std::string& line : lines) EXPECT_LE(Columns(Bare(line)), columns) << line;
          }
    }
  }
}

double Linear(double share) { return share <= 0.04045 ? share / 12.92 : std::pow((share + 0.055) / 1.055, 2.4); }

// Relative luminance of a colour of the 6 x 6 x 6 cube (WCAG 2: IEC 61966-2-1 and Rec. 709 weights).
double Luminance(int colour) {
  const int levels[] = {0, 95, 135, 175, 215, 255};
  const int at = colour - 16;
  const auto part = [&](int index) { return Linear(levels[index] / 255.0); };
  return 0.2126 * part(at / 36) + 0.7152 * part(at / 6 % 6) + 0.0722 * part(at % 6);
}

TEST(HeadGrid, ColoursGrowBrighterSoThatTheColourBlindReadThem) {
  const std::vector<float> values = {0, 1, 2, 3};
  const std::string key = DrawGrid(Window(80, true), {2, values, 0}, 10).back();
  std::vector<double> luminance;
  for (size_t at = key.find("48;5;"); at != std::string::npos; at = key.find("48;5;", at + 1))
    luminance.push_back(Luminance(std::stoi(key.substr(at + 5))));
  ASSERT_EQ(luminance.size(), 8u);
  for (size_t i = 1; i < luminance.size(); ++i)
    EXPECT_GT((luminance[i] + 0.05) / (luminance[i - 1] + 0.05), 1.1) << i;
}

TEST(HeadGrid, ColourSaysWhatTheRampSays) {
  const std::vector<float> values = {0, 10, 20, 50};
  const auto lines = DrawGrid(Window(40, true), {1, values, 40}, 10);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1], "L0 \x1b[48;5;53;38;5;231m    \x1b[48;5;24;38;5;231m    \x1b[48;5;36;38;5;16m    "
                      "\x1b[48;5;226;38;5;16m!!!!\x1b[0m");
}

TEST(HeadGrid, SurvivesWhatIsNoPicture) {
  const std::vector<float> none = {kAbsent, kAbsent}, infinite = {INFINITY, NAN}, same = {5, 5},
                           huge = {-FLT_MAX / 2, FLT_MAX};
  EXPECT_TRUE(DrawGrid(Window(80), {}, 10).empty());
  EXPECT_TRUE(DrawGrid(Window(80), {3, same, 1}, 10).empty()) << "no multiple";
  EXPECT_EQ(GridRowsWanted({3, same, 1}), 0u);
  EXPECT_EQ(DrawGrid(Window(80), {1, none, 100}, 10)[1], "L0 ........");
  EXPECT_EQ(DrawGrid(Window(80), {1, infinite, 100}, 10)[1], "L0 xxxxxxxx");
  EXPECT_EQ(DrawGrid(Window(80), {1, infinite, 100}, 10)[2], "2 heads not finite, none finite");
  EXPECT_EQ(DrawGrid(Window(80), {1, same, 0}, 10)[1], "L0         ");
  EXPECT_EQ(DrawGrid(Window(80), {1, huge, 0}, 10)[1], "L0     ####");
}

}  // namespace
}  // namespace gyrostat::ctl
