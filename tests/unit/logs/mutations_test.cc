// Every own log, spoilt in every way that files get spoilt: it is read without harm, and where the spoiling loses
// nothing, without loss.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "support/lcg.h"
#include "support/paths.h"
#include "unit/logs/spoilt.h"

namespace gyrostat::logs {
namespace {

std::vector<std::string> OwnLogs() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(testing::kSourceDir) + "/tests/corpus")) {
    const std::string name = entry.path().filename();
    if (entry.is_regular_file() && name != "README.md" && entry.path().extension() != ".gz") names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

bool IsText(const std::string& name) { return name.find(".tfevents") == std::string::npos; }

bool EndsIn(const std::string& name, std::string_view end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

std::vector<std::string> Only(bool (*wanted)(const std::string&)) {
  std::vector<std::string> names;
  std::ranges::copy_if(OwnLogs(), std::back_inserter(names), wanted);
  return names;
}

bool IsPrinted(const std::string& name) { return EndsIn(name, ".log") || EndsIn(name, ".txt"); }
bool IsOfRows(const std::string& name) { return IsText(name) && !EndsIn(name, ".json"); }
// Neither with ranks of its own nor with records of several lines.
bool MayGetRanks(const std::string& name) {
  return IsPrinted(name) && name != "olmo_text.log" && name != "megatron_srun.log" && name != "torchtitan_ansi.log";
}

class Mutations : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    text_ = OwnLog(GetParam());
    steps_ = Steps(ReadAuto(text_));
    ASSERT_GT(steps_, 40u);
  }
  std::string text_;
  size_t steps_ = 0;
};

TEST_P(Mutations, CutAnywhere) {
  size_t before = 0;
  for (size_t cut = 0; cut <= text_.size(); cut += std::max<size_t>(text_.size() / 97, 1)) {
    const size_t steps = Steps(ReadAuto(text_.substr(0, cut)));
    EXPECT_LE(steps, steps_ + 1);
    before = std::max(before, steps);
  }
  EXPECT_GE(before + 2, steps_ / 2);
}

class TextMutations : public Mutations {};
TEST_P(TextMutations, OtherLineEndsAndAByteOrderMark) {
  EXPECT_EQ(Steps(ReadAuto(EachLine(text_, [](const std::string& line) {
              return line.substr(0, line.find_last_not_of('\r') + 1) + "\r\n";
            }))), steps_);
  EXPECT_EQ(Steps(ReadAuto("\xef\xbb\xbf" + text_.substr(text_.rfind("\xef\xbb\xbf", 0) == 0 ? 3 : 0))), steps_);
}

class RowMutations : public Mutations {};
TEST_P(RowMutations, DoubledLinesAreReadOnce) {
  const bool table = GetParam().find(".csv") != std::string::npos;
  bool header = table;
  const Rows rows = ReadAuto(EachLine(text_, [&header](const std::string& line) {
    const bool once = std::exchange(header, false);
    return once ? line + "\n" : line + "\n" + line + "\n";
  }));
  EXPECT_EQ(Steps(rows), steps_);
  EXPECT_EQ(Attempts(rows), 1u);
}

class PrintMutations : public Mutations {};
TEST_P(PrintMutations, ColoursAroundEveryLine) {
  EXPECT_EQ(Steps(ReadAuto(EachLine(text_, [](const std::string& line) {
              return "\x1b[32m" + line + "\x1b[0m\n";
            }))), steps_);
}

class RankMutations : public Mutations {};
TEST_P(RankMutations, RanksThatPrintInterleaved) {
  const Rows rows = ReadAuto(EachLine(text_, [](const std::string& line) {
    return "[rank0]: " + line + "\n[rank1]: " + line + "\n[rank2]: " + line + "\n";
  }));
  EXPECT_EQ(Steps(rows), steps_);
  EXPECT_EQ(Attempts(rows), 1u);
}

TEST_P(RankMutations, ATasksLabelAndLongLinesCut) {
  const Rows rows = ReadAuto(EachLine(text_, Labelled));
  EXPECT_EQ(Steps(rows), steps_);
  EXPECT_EQ(Attempts(rows), 1u);
}

TEST_P(PrintMutations, ColoursBetweenNamesAndValues) {
  std::string coloured;
  for (size_t i = 0; i < text_.size(); ++i) {
    coloured += text_[i];
    const bool after = i > 0 && text_[i] == ' ' && (text_[i - 1] == ':' || text_[i - 1] == '=');
    if (after) coloured += i % 3 == 0 ? "\x1b[38;2;180;60;0m" : i % 3 == 1 ? "\x1b(B\x1b[m" : "\x1b]0;title\a";
  }
  EXPECT_EQ(Steps(ReadAuto(coloured)), steps_);
}

TEST_P(Mutations, NulsThatACrashLeft) {
  std::string holed = text_;
  // Behind a line's end, where the next block of the file would have begun.
  const size_t line = holed.find('\n', std::min<size_t>(holed.size() / 2 + kNulBytes, holed.size() - 1));
  if (line == std::string::npos) GTEST_SKIP() << "it is one line, or shorter than what is looked at first";
  holed.insert(line + 1, std::string(4096, '\0'));
  EXPECT_GE(Steps(ReadAuto(holed)) + 1, IsOfRows(GetParam()) ? steps_ : 0);
}

TEST_P(Mutations, HugeNumbersAndRandomBytes) {
  if (IsText(GetParam())) {
    std::string huge;
    for (const char c : text_) huge += c == '5' ? "5" + std::string(40, '9') : std::string(1, c);
    ReadAuto(huge);
    std::string exponents;
    for (const char c : text_) exponents += c == '7' ? std::string("7e9999") : std::string(1, c);
    ReadAuto(exponents);
  }
  testing::Lcg random(7);
  for (int round = 0; round < 40; ++round) {
    std::string bytes = text_;
    for (int i = 0; i < 30; ++i)
      bytes[random.Below(static_cast<uint32_t>(bytes.size()))] = static_cast<char>(random.Below(256));
    EXPECT_LE(Steps(ReadAuto(bytes)), 3 * steps_);
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Own, Mutations, ::testing::ValuesIn(OwnLogs()), NameOf);
INSTANTIATE_TEST_SUITE_P(Own, TextMutations, ::testing::ValuesIn(Only(IsText)), NameOf);
INSTANTIATE_TEST_SUITE_P(Own, RowMutations, ::testing::ValuesIn(Only(IsOfRows)), NameOf);
INSTANTIATE_TEST_SUITE_P(Own, PrintMutations, ::testing::ValuesIn(Only(IsPrinted)), NameOf);
INSTANTIATE_TEST_SUITE_P(Own, RankMutations, ::testing::ValuesIn(Only(MayGetRanks)), NameOf);

}  // namespace
}  // namespace gyrostat::logs
