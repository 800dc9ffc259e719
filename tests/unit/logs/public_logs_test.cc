// The public logs of $GYROSTAT_CORPUS parse with no flag but their name: the format is found, and at least 99 % of the
// steps that its LABELS.md counts are there. The values beyond argument are the right ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "logs/log_file.h"
#include "unit/logs/rows.h"

namespace gyrostat::logs {
namespace {

using model::Signal;

struct Public {
  const char* file;
  Format format;
  size_t steps, runs;
};

const Public kPublic[] = {
    {"algoperf_absl_nan_step63.log", Format::kText, 99, 1},
    {"algoperf_deepspeech_inf_grads.csv", Format::kCsv, 1924, 1},
    {"algoperf_deepspeech_inf_grads.tfevents", Format::kTensorboard, 1924, 1},
    {"algoperf_wmt_diverged.tfevents", Format::kTensorboard, 58, 1},
    {"automodel_nan_tokens.jsonl", Format::kJsonl, 100, 1},
    {"deepspeed_bf16_loss_crlf.csv", Format::kCsv, 1000, 1},
    {"deepspeed_chat_sft_overflow.log", Format::kDeepspeed, 736, 1},
    {"fairseq_json_string_numbers.log", Format::kFairseq, 251, 1},
    {"gptopt_columns_adamw_lr0.02_diverged.json", Format::kJson, 1906, 1},
    {"hf_trainer_state_grad_spike_step22.json", Format::kHfTrainer, 81, 1},
    {"hf_trainer_state_nan_grads.json", Format::kHfTrainer, 120, 1},
    {"instructllama_sft_stable.tfevents", Format::kTensorboard, 501, 1},
    {"llamafactory_trainer_log_stable.jsonl", Format::kHfTrainer, 435, 1},
    {"llmc_mainlog_stable.log", Format::kLlmc, 9536, 1},
    {"llmc_stdout_nan_from_step1.log", Format::kLlmc, 901, 1},
    {"megatron_bigscience_3d_blowup.out", Format::kMegatron, 62, 1},
    {"megatron_golden_string_nan.json", Format::kJson, 50, 1},
    {"megatron_grad_spikes_srun.out", Format::kMegatron, 2092, 1},
    {"modded_nanogpt_muon_data_spikes.txt", Format::kNanogpt, 6200, 1},
    {"nanochat_sft_nan_step9.log", Format::kNanogpt, 133, 1},
    {"nanogpt_wandb_output_late_spikes.log", Format::kNanogpt, 2156, 1},
    {"torchtitan_ansi_inf_grad.log", Format::kTorchtitan, 101, 1},
    {"wandb_sweep_attention_logit_explosion.csv", Format::kWandb, 426, 6},
};

class PublicLogs : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("GYROSTAT_CORPUS");
    if (folder == nullptr || !std::filesystem::is_directory(folder))
      GTEST_SKIP() << "GYROSTAT_CORPUS names no folder: no public logs to read";
    folder_ = folder;
  }
  Rows ReadFile(const std::string& name, Format format) {
    Rows rows;
    const ReadOutcome outcome = ReadLog(folder_ + "/" + name, {}, &rows, nullptr);
    EXPECT_EQ(outcome.error, "") << name;
    EXPECT_EQ(outcome.format, format) << name;
    EXPECT_LE(outcome.losses.skipped_rows, 1u) << name;
    return rows;
  }
  // The value of `signal` at each step of the only run.
  std::map<model::Step, double> SeriesOf(const std::string& name, Format format, Signal signal) {
    std::map<model::Step, double> series;
    const Rows rows = ReadFile(name, format);
    for (const Row& row : rows.runs.at(0).rows)
      if (row.report.Has(signal)) series[row.report.step] = row.report.Scalar(signal);
    return series;
  }
  std::string folder_;
};

TEST_F(PublicLogs, EachParsesWithNoFlag) {
  for (const Public& each : kPublic) {
    const Rows rows = ReadFile(each.file, each.format);
    EXPECT_EQ(rows.runs.size(), each.runs) << each.file;
    size_t steps = 0;
    for (const RunSeen& run : rows.runs) {
      steps += run.rows.size();
      for (const Row& row : run.rows) EXPECT_EQ(row.attempt, 0u) << each.file << " step " << row.report.step;
    }
    EXPECT_GE(100 * steps, 99 * each.steps) << each.file;
    EXPECT_LE(steps, each.steps) << each.file;
  }
}

TEST_F(PublicLogs, EveryFileOfTheFolderIsKnownHere) {
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string name = entry.path().filename();
    const auto known = [&name](const Public& each) { return name == each.file; };
    if (entry.path().extension() == ".md") continue;
    EXPECT_TRUE(std::ranges::any_of(kPublic, known)) << name;
  }
}

TEST_F(PublicLogs, ValuesBeyondArgumentAreRight) {
  auto loss = SeriesOf("megatron_grad_spikes_srun.out", Format::kMegatron, Signal::kLoss);
  EXPECT_NEAR(loss[1605], 3.709, 1e-3);
  EXPECT_NEAR(SeriesOf("hf_trainer_state_grad_spike_step22.json", Format::kHfTrainer, Signal::kGradNorm)[22], 71.9,
              0.05);
  auto norms = SeriesOf("hf_trainer_state_nan_grads.json", Format::kHfTrainer, Signal::kGradNorm);
  for (const auto& [step, value] : norms) EXPECT_EQ(std::isnan(value), step == 1 || step == 2 || step == 6) << step;
  EXPECT_EQ(SeriesOf("hf_trainer_state_nan_grads.json", Format::kHfTrainer, Signal::kLoss)[120], 0.437);
  loss = SeriesOf("algoperf_absl_nan_step63.log", Format::kText, Signal::kLoss);
  EXPECT_NEAR(loss[62], 2.1e15, 5e13);
  EXPECT_TRUE(std::isnan(loss[63]));
  EXPECT_EQ(SeriesOf("torchtitan_ansi_inf_grad.log", Format::kTorchtitan, Signal::kGradNorm)[780], INFINITY);
  loss = SeriesOf("nanochat_sft_nan_step9.log", Format::kNanogpt, Signal::kLoss);
  EXPECT_NEAR(loss[6], 9.55, 0.01);
  EXPECT_TRUE(std::isnan(loss[9]));
}

// The same run twice: a table in which NaN is an empty cell, and an event file in which it is NaN.
TEST_F(PublicLogs, EmptyCellsAreTheNansOfTheEventFile) {
  for (const Signal signal : {Signal::kLoss, Signal::kGradNorm}) {
    const auto table = SeriesOf("algoperf_deepspeech_inf_grads.csv", Format::kCsv, signal);
    const auto events = SeriesOf("algoperf_deepspeech_inf_grads.tfevents", Format::kTensorboard, signal);
    ASSERT_EQ(table.size(), events.size());
    for (const auto& [step, value] : table) {
      const double other = events.at(step);
      if (std::isnan(other)) EXPECT_TRUE(std::isnan(value)) << step;
      else EXPECT_EQ(static_cast<float>(value), static_cast<float>(other)) << step;
    }
  }
}

}  // namespace
}  // namespace gyrostat::logs
