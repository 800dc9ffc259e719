#include "logs/log_file.h"

#include <zlib.h>

#include <filesystem>

#include "logs/sniff.h"
#include "support/temp_dir.h"
#include "unit/logs/rows.h"

namespace gyrostat::logs {
namespace {

class LogFile : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, std::string_view bytes) {
    const std::string path = temp_.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  ReadOutcome ReadPath(const std::string& path, const ReadOptions& options = {}) {
    rows_ = {};
    return ReadLog(path, options, &rows_, nullptr);
  }
  testing::TempDir temp_;
  Rows rows_;
};

TEST_F(LogFile, UnpacksGzipAndNamesTheRunByItsFile) {
  const std::string path = temp_.path() + "/run.log.gz";
  const std::string text = OwnLog("nanogpt.log");
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  const ReadOutcome outcome = ReadPath(path);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.format, Format::kNanogpt);
  EXPECT_EQ(rows_.runs[0].name, "run.log.gz");
  EXPECT_EQ(rows_.runs[0].rows.size(), 60u);
}

TEST_F(LogFile, AGzipFileCutInTheMiddleGivesWhatCameBefore) {
  const std::string bytes = OwnLog("gyrostat.jsonl.gz");
  const ReadOutcome outcome = ReadPath(Write("cut.gz", std::string_view(bytes).substr(0, bytes.size() / 2)));
  EXPECT_EQ(outcome.error, "");
  ASSERT_EQ(rows_.runs.size(), 1u);
  EXPECT_GT(rows_.runs[0].rows.size(), 5u);
  EXPECT_LT(rows_.runs[0].rows.size(), 60u);
  EXPECT_NE(outcome.losses.warnings.back().find("could not be read to its end"), std::string::npos);
}

TEST_F(LogFile, SaysWhatStandsInTheWay) {
  const std::pair<std::string, std::string> cases[] = {
      {temp_.path() + "/absent", ": No such file or directory"},
      {temp_.path(), ": it is a directory, wanted a log file"},
      {Write("empty", ""), ": it is empty"},
      {Write("blank", "\n \n"), ": it is empty"},
      {Write("pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"),
       ": it is a Git LFS pointer"},
      {Write("binary", std::string(100, '\0')), ": it is binary and no TensorBoard event file"},
      {Write("powershell", std::string("\xff\xfel\0o\0s\0s\0", 10)), ": it is UTF-16, wanted UTF-8"},
      {Write("unmarked", std::string("s\0t\0e\0p\0 \0001\0\n\0", 14)), ": it is UTF-16, wanted UTF-8"},
      {Write("prose", "hello\nthis is no log\n"), ":1: no step with a loss"},
      {Write("odd.csv", "it,ce\n1,2.5\n2,2.4\n"), ":1: no step with a loss"}};
  for (const auto& [path, wanted] : cases) {
    const std::string error = ReadPath(path).error;
    EXPECT_EQ(error.substr(0, path.size()), path);
    EXPECT_NE(error.find(wanted), std::string::npos) << error;
  }
  EXPECT_NE(ReadPath(temp_.path() + "/odd.csv").error.find("It has it, ce. Say what is what with --map"),
            std::string::npos);
}

TEST_F(LogFile, MappedNamesAreRead) {
  ReadOptions options;
  options.keys.map = {{"step", "it"}, {"loss", "ce"}};
  EXPECT_EQ(ReadPath(Write("odd.csv", "it,ce\n1,2.5\n2,2.4\n"), options).error, "");
  EXPECT_EQ(rows_.runs[0].Losses(), (std::vector<double>{2.5, 2.4}));
}

TEST(Sniff, AsksForMoreUntilATrainerShowsItself) {
  std::string text = "[2026-01-02] settings, lr 0.1\n";
  for (int i = 0; i < 1000; ++i) text += "  some_argument ............................ 1\n";
  std::string error;
  EXPECT_EQ(Sniff(text, false, &error), std::nullopt);
  text += "iter 0: loss 4.45, time 2ms\n";
  EXPECT_EQ(Sniff(text, false, &error), Format::kNanogpt);
  EXPECT_EQ(Sniff("", false, &error), std::nullopt);
  EXPECT_EQ(error, "");
}

TEST(Sniff, TellsKindsOfJsonApart) {
  std::string error;
  EXPECT_EQ(Sniff("{\"step\": 1, \"loss\": 2}\n", false, &error), Format::kJsonl);
  EXPECT_EQ(Sniff("{\"gyrostat\": 1, \"run\": \"x\"}\n", false, &error), Format::kGyrostat);
  EXPECT_EQ(Sniff("{\"current_steps\": 5, \"total_steps\": 9, \"loss\": 2}\n", false, &error), Format::kHfTrainer);
  EXPECT_EQ(Sniff("{\n \"best_metric\": null,\n \"log_history\": [\n", true, &error), Format::kHfTrainer);
  EXPECT_EQ(Sniff("{\"losses\": [1, 2], \"name\": \"x\"}", true, &error), Format::kJson);
  EXPECT_EQ(Sniff("[{\"step\": 1, \"loss\": 2}]", true, &error), Format::kJson);
  EXPECT_EQ(Sniff("[2026-01-02 03:04:05] [INFO] hello\nstep=1 loss=2\n", true, &error), Format::kText);
}

TEST(Sniff, AHeaderLineMakesATable) {
  std::string error;
  EXPECT_EQ(Sniff("step,loss\n1,2\n", false, &error), Format::kCsv);
  EXPECT_EQ(Sniff("first,second\n1,2\n", false, &error), Format::kCsv);
  EXPECT_EQ(Sniff("_step,run_id,train/loss\n1,x,2\n", false, &error), Format::kWandb);
  EXPECT_EQ(Sniff("I say, hello\nyou say 2\n", true, &error), Format::kText);
}

}  // namespace
}  // namespace gyrostat::logs
