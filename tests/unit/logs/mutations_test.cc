// Every own log, spoilt in every way that files get spoilt: it is read without harm, and where the spoiling loses
// nothing, without loss.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "logs/sniff.h"
#include "support/lcg.h"
#include "unit/logs/rows.h"

namespace gyrostat::logs {
namespace {

std::vector<std::string> OwnLogs() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(GYROSTAT_SOURCE_DIR) + "/tests/corpus")) {
    const std::string name = entry.path().filename();
    if (name != "README.md" && entry.path().extension() != ".gz") names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

bool IsText(const std::string& name) { return name.find(".tfevents") == std::string::npos; }

// As a file would be: the format is found from the bytes.
Rows ReadAuto(const std::string& bytes) {
  Rows rows;
  Assembler assembler("file", {}, &rows);
  AutoReader reader(&assembler);
  for (size_t at = 0; at < bytes.size(); at += 1000) reader.Feed(std::string_view(bytes).substr(at, 1000));
  reader.Finish();
  assembler.Finish();
  rows.losses = assembler.losses();
  return rows;
}

size_t Steps(const Rows& rows) {
  size_t steps = 0;
  for (const RunSeen& run : rows.runs) steps += run.rows.size();
  return steps;
}

uint32_t Attempts(const Rows& rows) {
  uint32_t attempts = 0;
  for (const RunSeen& run : rows.runs)
    for (const Row& row : run.rows) attempts = std::max(attempts, row.attempt + 1);
  return attempts;
}

template <class Change>
std::string EachLine(const std::string& text, Change change) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += change(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
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

TEST_P(Mutations, OtherLineEndsAndAByteOrderMark) {
  if (!IsText(GetParam())) GTEST_SKIP() << "an event file has no lines";
  EXPECT_EQ(Steps(ReadAuto(EachLine(text_, [](const std::string& line) {
              return line.substr(0, line.find_last_not_of('\r') + 1) + "\r\n";
            }))), steps_);
  EXPECT_EQ(Steps(ReadAuto("\xef\xbb\xbf" + text_.substr(text_.rfind("\xef\xbb\xbf", 0) == 0 ? 3 : 0))), steps_);
}

TEST_P(Mutations, DoubledLinesAreReadOnce) {
  if (!IsText(GetParam()) || GetParam().find(".json") == GetParam().size() - 5) GTEST_SKIP() << "not made of rows";
  const bool table = GetParam().find(".csv") != std::string::npos;
  bool header = table;
  const Rows rows = ReadAuto(EachLine(text_, [&header](const std::string& line) {
    const bool once = std::exchange(header, false);
    return once ? line + "\n" : line + "\n" + line + "\n";
  }));
  EXPECT_EQ(Steps(rows), steps_);
  EXPECT_EQ(Attempts(rows), 1u);
}

TEST_P(Mutations, ColoursAroundEveryLine) {
  const std::string& name = GetParam();
  if (name.find(".log") == std::string::npos && name.find(".txt") == std::string::npos)
    GTEST_SKIP() << "nobody colours these";
  EXPECT_EQ(Steps(ReadAuto(EachLine(text_, [](const std::string& line) {
              return "\x1b[32m" + line + "\x1b[0m\n";
            }))), steps_);
}

TEST_P(Mutations, RanksThatPrintInterleaved) {
  const std::string& name = GetParam();
  if (name.find(".log") == std::string::npos && name.find(".txt") == std::string::npos) GTEST_SKIP() << "not printed";
  if (name == "olmo_text.log" || name == "megatron_srun.log" || name == "torchtitan_ansi.log")
    GTEST_SKIP() << "has ranks, or records of several lines";
  const Rows rows = ReadAuto(EachLine(text_, [](const std::string& line) {
    return "[rank0]: " + line + "\n[rank1]: " + line + "\n[rank2]: " + line + "\n";
  }));
  EXPECT_EQ(Steps(rows), steps_);
  EXPECT_EQ(Attempts(rows), 1u);
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

INSTANTIATE_TEST_SUITE_P(Own, Mutations, ::testing::ValuesIn(OwnLogs()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});

}  // namespace
}  // namespace gyrostat::logs
