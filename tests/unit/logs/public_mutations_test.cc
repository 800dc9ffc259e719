// The public logs of $GYROSTAT_CORPUS, spoilt: read without harm, and where the spoiling loses nothing, 99 % of the
// steps stay and no attempt is made up.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <utility>

#include "logs/log_file.h"
#include "support/lcg.h"
#include "unit/logs/spoilt.h"

namespace gyrostat::logs {
namespace {

struct Log {
  std::string name, text;
  Format format = Format::kAuto;
  size_t steps = 0;

  bool binary() const { return format == Format::kTensorboard; }
  // One value over all lines.
  bool document() const {
    return format == Format::kJson || (format == Format::kHfTrainer && name.find(".jsonl") == std::string::npos);
  }
  bool table() const { return format == Format::kCsv || format == Format::kWandb; }
  // Printed by one process: a launcher may have labelled its lines.
  bool printed() const {
    return !binary() && !document() && !table() && name != "megatron_grad_spikes_srun.out" &&
           name != "torchtitan_ansi_inf_grad.log" && name != "algoperf_absl_nan_step63.log";
  }
};

class PublicMutations : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("GYROSTAT_CORPUS");
    if (folder == nullptr || !std::filesystem::is_directory(folder))
      GTEST_SKIP() << "GYROSTAT_CORPUS names no folder: no public logs to spoil";
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".md") continue;
      Log log;
      log.name = entry.path().filename();
      std::ifstream in(entry.path(), std::ios::binary);
      log.text.assign(std::istreambuf_iterator<char>(in), {});
      Rows rows;
      log.format = ReadLog(entry.path(), {}, &rows, nullptr).format;
      log.steps = Steps(rows);
      ASSERT_GT(log.steps, 40u) << log.name;
      logs_.push_back(std::move(log));
    }
    ASSERT_GT(logs_.size(), 20u);
  }
  void ExpectKept(bool (Log::*of)() const, bool wanted, const std::function<std::string(const Log&)>& spoil) {
    for (const Log& log : logs_) {
      if (log.binary() || (log.*of)() != wanted) continue;
      const Rows rows = ReadAuto(spoil(log));
      EXPECT_GE(100 * Steps(rows), 99 * log.steps) << log.name;
      EXPECT_LE(Steps(rows), log.steps) << log.name;
      EXPECT_EQ(Attempts(rows), 1u) << log.name;
    }
  }
  std::vector<Log> logs_;
};

TEST_F(PublicMutations, OtherLineEndsAndAByteOrderMark) {
  ExpectKept(&Log::binary, false, [](const Log& log) {
    return "\xef\xbb\xbf" + EachLine(log.text, [](const std::string& line) {
             return line.substr(0, line.find_last_not_of('\r') + 1) + "\r\n";
           });
  });
}

TEST_F(PublicMutations, DoubledLines) {
  ExpectKept(&Log::document, false, [](const Log& log) {
    bool header = log.table();
    return EachLine(log.text, [&header](const std::string& line) {
      return std::exchange(header, false) ? line + "\n" : line + "\n" + line + "\n";
    });
  });
}

TEST_F(PublicMutations, Colours) {
  ExpectKept(&Log::printed, true, [](const Log& log) {
    return EachLine(log.text, [](const std::string& line) { return "\x1b[32m" + line + "\x1b[0m\n"; });
  });
}

TEST_F(PublicMutations, ATasksLabelAndLongLinesCut) {
  ExpectKept(&Log::printed, true, [](const Log& log) { return EachLine(log.text, Labelled); });
}

TEST_F(PublicMutations, RanksThatPrintInterleaved) {
  ExpectKept(&Log::printed, true, [](const Log& log) {
    return EachLine(log.text, [](const std::string& line) {
      return "0: " + line + "\n2: " + line + "\n1: " + line + "\n";
    });
  });
}

TEST_F(PublicMutations, CutAnywhereItsFirstStepsAreThere) {
  for (const Log& log : logs_) {
    size_t before = 0;
    for (size_t piece = 1; piece <= 7; ++piece) {
      const size_t steps = Steps(ReadAuto(log.text.substr(0, log.text.size() * piece / 7 - piece % 3)));
      EXPECT_LE(steps, log.steps + 1) << log.name;
      if (!log.document()) {
        EXPECT_GE(steps + 1, before) << log.name;
      }
      before = steps;
    }
  }
}

TEST_F(PublicMutations, HugeNumbersNulsAndRandomBytesDoNoHarm) {
  testing::Lcg random(11);
  for (const Log& log : logs_) {
    std::string huge;
    for (const char c : log.text)
      huge += c == '5' ? "5" + std::string(40, '9') : c == '7' ? "7e9999" : std::string(1, c);
    if (!log.binary()) ReadAuto(huge);
    for (const size_t holes : {1, 100, 10000}) {
      std::string bytes = log.text;
      for (size_t i = 0; i < holes; ++i)
        bytes[random.Below(static_cast<uint32_t>(bytes.size()))] =
            i % 2 == 0 ? '\0' : static_cast<char>(random.Below(256));
      EXPECT_LE(Steps(ReadAuto(bytes)), 3 * log.steps) << log.name;
    }
  }
}

}  // namespace
}  // namespace gyrostat::logs
