#include "logs/lines.h"

#include <gtest/gtest.h>

#include <utility>

#include "unit/logs/rows.h"

namespace gyrostat::logs {
namespace {

class Lines : public LineReader {
 public:
  explicit Lines(RecordSink* sink) : LineReader(sink) {}
  std::vector<std::pair<std::string, uint64_t>> seen;
  bool last_complete = true;

 protected:
  void OnLine(std::string_view line, uint64_t number, bool complete) override {
    seen.emplace_back(line, number);
    last_complete = complete;
  }
};

using Seen = std::vector<std::pair<std::string, uint64_t>>;

TEST(LineReader, CutsAtEveryKindOfEndWhereverThePieceEnds) {
  const std::string text = "\xef\xbb\xbf" "a\r\nb\n\nc\rd\r\r\ne";
  for (const size_t piece : {1, 2, 3, 100}) {
    Rows rows;
    Assembler sink("file", {}, &rows);
    Lines lines(&sink);
    for (size_t at = 0; at < text.size(); at += piece) lines.Feed(std::string_view(text).substr(at, piece));
    lines.Finish();
    EXPECT_EQ(lines.seen, (Seen{{"a", 1}, {"b", 2}, {"c", 4}, {"d", 4}, {"e", 5}})) << piece;
    EXPECT_FALSE(lines.last_complete);
  }
}

// 2,048 bytes and a bit of task 3, a line as long as a cut one of task 5, and what others print in between.
TEST(LineReader, PutsTogetherWhatSrunHasCut) {
  const std::string a(1024, 'a'), b(1024, 'b'), whole(1024, 'w');
  const std::string text = "3: " + a + "\n 7: x\n3: " + b + "\n5: " + whole + "\n3: loss: 1\n3: next\n" +
                           std::string(3, '\0') + "y\n";
  Rows rows;
  Assembler sink("file", {}, &rows);
  Lines lines(&sink);
  lines.Feed(text);
  lines.Finish();
  EXPECT_EQ(lines.seen, (Seen{{" 7: x", 2}, {"3: " + a + b + "loss: 1", 5}, {"3: next", 6}, {"y", 7},
                              {"5: " + whole, 8}}));
}

TEST(WithoutAnsi, TakesColoursOut) {
  std::string scratch;
  EXPECT_EQ(WithoutAnsi("\x1b[31mstep: \x1b[38;2;180;60;0m 1\x1b[39m", &scratch), "step:  1");
  EXPECT_EQ(WithoutAnsi("plain", &scratch), "plain");
  EXPECT_EQ(WithoutAnsi("torn \x1b[3", &scratch), "torn ");
  EXPECT_EQ(WithoutAnsi("torn \x1b", &scratch), "torn ");
  EXPECT_EQ(WithoutAnsi("\x1b(B\x1b[mloss: 1", &scratch), "loss: 1");
  EXPECT_EQ(WithoutAnsi("\x1b]0;a title\aloss: 1 \x1b]8;;http://x\x1b\\link", &scratch), "loss: 1 link");
}

TEST(WithoutRank, TakesTheLaunchersPrefixOff) {
  const std::tuple<const char*, const char*, int> cases[] = {
      {"55:  [2026-07-15] iteration", " [2026-07-15] iteration", 55}, {" 7: text", "text", 7},
      {"[rank3]:[titan] 2026", "[titan] 2026", 3},                    {"[default7]: loss", " loss", 7},
      {"[Rank 0] step=1", " step=1", 0},                              {"12:30:05 text", "12:30:05 text", -1},
      {"12) loss", "12) loss", -1},                                   {"[rank] x", "[rank] x", -1}};
  for (const auto& [line, rest, wanted] : cases) {
    std::optional<uint32_t> rank;
    EXPECT_EQ(WithoutRank(line, &rank), rest) << line;
    EXPECT_EQ(rank ? static_cast<int>(*rank) : -1, wanted) << line;
  }
}

}  // namespace
}  // namespace gyrostat::logs
