#include "ctl/heat_map.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/signal.h"

namespace gyrostat::ctl {
namespace {

std::string Decoded(const std::string& figure) {
  const std::string begin = "data:image/bmp;base64,";
  const size_t from = figure.find(begin) + begin.size(), to = figure.find('"', from);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : figure.substr(from, to - from)) {
    static const std::string kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t place = kAlphabet.find(c);
    if (place == std::string::npos) break;
    bits = (bits << 6) | static_cast<uint32_t>(place);
    if ((count += 6) < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>((bits >> count) & 0xff));
  }
  return bytes;
}

int Byte(const std::string& bytes, size_t at) { return static_cast<unsigned char>(bytes.at(at)); }

constexpr size_t kHeaders = 14 + 40 + 4 * 256;

TEST(LayerMapFigure, HoldsItsValuesAsBytesFromTheBottomUp) {
  LayerMap map;
  for (int step = 0; step < 5; ++step) {
    const float values[] = {static_cast<float>(step), step == 2 ? NAN : 8.0f};
    map.Add(10 * step, values, 2);
  }
  const std::string figure = LayerMapFigure({"id", "t<", "about", "layer"}, map, StepAxis(0, 40));
  const std::string bitmap = Decoded(figure);
  ASSERT_EQ(bitmap.size(), kHeaders + 2 * 8) << "rows are filled up to four bytes";
  EXPECT_EQ(bitmap.substr(0, 2), "BM");
  EXPECT_EQ(Byte(bitmap, 2) + 256 * Byte(bitmap, 3), static_cast<int>(bitmap.size()));
  EXPECT_EQ(Byte(bitmap, 18), 5) << "columns";
  EXPECT_EQ(Byte(bitmap, 22), 2) << "rows";
  EXPECT_EQ(Byte(bitmap, kHeaders), 0) << "layer 0, the lowest value";
  EXPECT_EQ(Byte(bitmap, kHeaders + 4), 127) << "half way of 253";
  EXPECT_EQ(Byte(bitmap, kHeaders + 8), 253) << "layer 1, the highest";
  EXPECT_EQ(Byte(bitmap, kHeaders + 8 + 2), 254) << "not finite";
  EXPECT_NE(figure.find("data-steps=\"0 10 20 30 40\""), std::string::npos);
  EXPECT_NE(figure.find("worst NaN in layer 1 at step 20"), std::string::npos) << figure;
  EXPECT_NE(figure.find("t&lt;"), std::string::npos);
  EXPECT_NE(figure.find(" not finite"), std::string::npos) << "the legend tells its colour";
  EXPECT_EQ(figure.find(" not measured"), std::string::npos);
}

TEST(LayerMapFigure, IsNotThereWhereNothingIsFinite) {
  LayerMap map;
  const float values[] = {NAN, NAN};
  map.Add(0, values, 2);
  EXPECT_EQ(LayerMapFigure({"id", "t", "", "layer"}, map, StepAxis(0, 1)), "");
}

TEST(HeadMapFigure, NamesTheWorstHeadsInOrder) {
  HeadMap map;
  const float early[] = {1, 5, model::kAbsent, 2}, late[] = {3, 4, model::kAbsent, 2};
  map.Add(7, early, 2);
  map.Add(8, late, 2);
  const std::string figure = HeadMapFigure({"id", "t", "", "layer"}, map);
  EXPECT_NE(figure.find("worst 5 in layer 0, head 1 at step 7"), std::string::npos) << figure;
  EXPECT_NE(figure.find("Then 3 in layer 0, head 0 at step 8; 2 in layer 1, head 1 at step 7."), std::string::npos);
  EXPECT_NE(figure.find(" not measured"), std::string::npos);
  EXPECT_EQ(Byte(Decoded(figure), kHeaders + 4), 255) << "layer 1, head 0";
}

TEST(HeadMapFigure, StaysSmallHoweverManyHeads) {
  HeadMap map;
  std::vector<float> values(128 * 128);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 977);
  map.Add(0, values, 128);
  EXPECT_LT(HeadMapFigure({"id", "t", "", "layer"}, map).size(), 32u << 10);
}

}  // namespace
}  // namespace gyrostat::ctl
