// Recorded runs and public logs, read and judged as `gyrostatctl replay` does: is the page that a person is paged with
// about what happened (their README.md and LABELS.md say what did), and is it one page?
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ctl/replayed.h"
#include "logs/log_file.h"

namespace gyrostat {
namespace {

using diagnose::Cause;
using diagnose::Diagnosis;

std::vector<ctl::Replayed> Replay(const std::string& file) {
  ctl::ReplayOptions options;
  options.rules = {"gyrostat"};
  ctl::Replay replay(options);
  const logs::ReadOutcome outcome = logs::ReadLog(file, {}, &replay, [](uint64_t, uint64_t) {});
  EXPECT_EQ(outcome.error, "");
  return replay.Take(file, outcome);
}

// The one that a person would look at first: the most severe, of those the one with the most in it.
const Diagnosis& MainOf(const ctl::Replayed& run) {
  return *std::max_element(run.episodes.begin(), run.episodes.end(), [](const Diagnosis& a, const Diagnosis& b) {
    return std::pair(a.severity, a.findings) < std::pair(b.severity, b.findings);
  });
}

std::string Folder(const char* variable) {
  const char* folder = std::getenv(variable);
  return folder == nullptr ? "" : folder;
}

enum class End { kOpen, kHealed };
struct Expected {
  const char* file;
  Cause cause;
  model::Step first_from, first_to;  // When the first mover moved.
  std::optional<uint32_t> layer;     // That moved first; nothing: the label does not say.
  End end = End::kOpen;
};

void ExpectPage(const ctl::Replayed& run, const Expected& expected) {
  SCOPED_TRACE(run.run);
  ASSERT_FALSE(run.episodes.empty());
  const Diagnosis& page = MainOf(run);
  EXPECT_STREQ(diagnose::Token(page.ranked.front().cause), diagnose::Token(expected.cause)) << page.Text();
  EXPECT_GE(page.first_step, expected.first_from) << page.Text();
  EXPECT_LE(page.first_step, expected.first_to) << page.Text();
  EXPECT_TRUE(!expected.layer || page.layer == expected.layer) << page.Text();
  EXPECT_EQ(page.healed.value_or(false), expected.end == End::kHealed) << page.Text();
  // Short enough to be read at night.
  EXPECT_LE(page.evidence.size(), 6u);
  EXPECT_LE(page.headline.size(), 160u) << page.headline;
  EXPECT_LE(page.Text().size(), 2400u) << page.Text();
}

TEST(Diagnosis, EveryUnstableRecordedRunHasOnePageAboutWhatHappened) {
  const std::string folder = Folder("GYROSTAT_RUNS");
  if (folder.empty()) GTEST_SKIP() << "GYROSTAT_RUNS is not set: no recorded runs to judge";
  const Expected table[] = {
      {"s1_gqa.none", Cause::kAttentionLogits, 30, 60, 0},
      {"s1c_qkx.x30", Cause::kAttentionLogits, 30, 60, {}},
      {"s1m_delay_s0.none", Cause::kAttentionLogits, 48, 99, 2},
      {"s1m_long.none_s0", Cause::kAttentionLogits, 48, 99, 2},
      {"s7b_ramp.s0", Cause::kAttentionLogits, 170, 192, {}},
      {"s2_auto.base_s2", Cause::kPostNormCollapse, 16, 19, 0},
      {"s2_base.w20_s0", Cause::kPostNormCollapse, 10, 11, 0},
      {"s2_base.w20_s1", Cause::kPostNormCollapse, 10, 11, 0},
      {"s3_deep12.post_s0", Cause::kPostNormCollapse, 18, 23, 0},
      {"s7_core.base_s2", Cause::kPostNormCollapse, 30, 174, 0},
      {"s8_fp16.lr.16_s0", Cause::kHalfOverflow, 130, 180, 3},
      {"s8_llama.none_s0", Cause::kHalfOverflow, 90, 110, 3},
      {"s5_bad.random1", Cause::kBadData, 250, 250, {}, End::kHealed},
      {"s5_bad.random10", Cause::kBadData, 250, 250, {}, End::kHealed},
      {"s5_bad.repeat1", Cause::kBadData, 250, 250, {}, End::kHealed},
  };
  for (const Expected& expected : table) {
    const auto runs = Replay(folder + "/" + expected.file + ".jsonl.gz");
    ASSERT_EQ(runs.size(), 1u) << expected.file;
    ExpectPage(runs[0], expected);
    EXPECT_EQ(runs[0].episodes.size(), 1u) << expected.file;
  }
}

TEST(Diagnosis, NobodyIsPagedForAHealthyOrARescuedRun) {
  const std::string folder = Folder("GYROSTAT_RUNS");
  if (folder.empty()) GTEST_SKIP() << "GYROSTAT_RUNS is not set: no recorded runs to judge";
  size_t runs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    const bool calm = name.rfind("s6_", 0) == 0 || name.rfind("s2_base.w300", 0) == 0 ||
                      name.rfind("s2_auto.auto", 0) == 0 || name.rfind("s1m_delay_s0.abs", 0) == 0 ||
                      name.rfind("s5_bad.shuffle1", 0) == 0;
    if (!calm) continue;
    ++runs;
    for (const ctl::Replayed& run : Replay(entry.path()))
      for (const Diagnosis& page : run.episodes) ADD_FAILURE() << name << ": " << page.Text();
  }
  EXPECT_GE(runs, 20u);
}

TEST(Diagnosis, PublicLogsHaveFewPagesAndTheyAreAboutWhatHappened) {
  const std::string folder = Folder("GYROSTAT_CORPUS");
  if (folder.empty()) GTEST_SKIP() << "GYROSTAT_CORPUS is not set: no public logs to judge";
  const Expected table[] = {
      {"algoperf_absl_nan_step63.log", Cause::kSlowDivergence, 29, 60, {}},
      {"algoperf_deepspeech_inf_grads.csv", Cause::kSlowDivergence, 179900, 180100, {}},
      {"algoperf_wmt_diverged.tfevents", Cause::kSlowDivergence, 32413, 37043, {}},
      {"gptopt_columns_adamw_lr0.02_diverged.json", Cause::kSlowDivergence, 0, 1000, {}},
      {"megatron_bigscience_3d_blowup.out", Cause::kSlowDivergence, 3, 60, {}},
      {"automodel_nan_tokens.jsonl", Cause::kNumeric, 0, 0, {}},
      {"llmc_stdout_nan_from_step1.log", Cause::kNumeric, 1, 1, {}},
      {"nanochat_sft_nan_step9.log", Cause::kNumeric, 1, 9, {}},
      {"hf_trainer_state_nan_grads.json", Cause::kNumeric, 1, 1, {}, End::kHealed},
      {"megatron_grad_spikes_srun.out", Cause::kOptimizer, 1310, 1597, {}},
      {"nanogpt_wandb_output_late_spikes.log", Cause::kBadData, 1178, 1260, {}, End::kHealed},
      {"hf_trainer_state_grad_spike_step22.json", Cause::kOptimizer, 17, 22, {}},
      {"deepspeed_bf16_loss_crlf.csv", Cause::kBadData, 3, 60, {}, End::kHealed},
  };
  for (const Expected& expected : table) {
    const auto runs = Replay(folder + "/" + expected.file);
    ASSERT_EQ(runs.size(), 1u) << expected.file;
    ExpectPage(runs[0], expected);
    EXPECT_LE(runs[0].episodes.size(), 5u) << expected.file;
  }
  for (const char* stable : {"llamafactory_trainer_log_stable.jsonl", "llmc_mainlog_stable.log",
                             "fairseq_json_string_numbers.log", "instructllama_sft_stable.tfevents",
                             "megatron_golden_string_nan.json", "modded_nanogpt_muon_data_spikes.txt"}) {
    for (const ctl::Replayed& run : Replay(folder + "/" + stable))
      for (const Diagnosis& page : run.episodes) ADD_FAILURE() << stable << ": " << page.Text();
  }
}

// Several runs in one file: those whose logits explode have a page that says so, the healthy ones none.
TEST(Diagnosis, ASweepHasAPageForEachRunThatExplodes) {
  const std::string folder = Folder("GYROSTAT_CORPUS");
  if (folder.empty()) GTEST_SKIP() << "GYROSTAT_CORPUS is not set: no public logs to judge";
  size_t exploded = 0;
  for (const ctl::Replayed& run : Replay(folder + "/wandb_sweep_attention_logit_explosion.csv")) {
    if (run.run == "g6rdipcd" || run.run == "wwmr8tw9" || run.run == "gz1gpya0") {
      ++exploded;
      ExpectPage(run, {run.run.c_str(), Cause::kAttentionLogits, 0, 12, 11});
      EXPECT_EQ(MainOf(run).severity, model::Severity::kCritical);
      EXPECT_EQ(run.episodes.size(), 1u) << run.run;
    } else if (run.run == "6pzcpq0n" || run.run == "2mgacfgs") {
      EXPECT_TRUE(run.episodes.empty()) << run.run;
    }
  }
  EXPECT_EQ(exploded, 3u);
}

}  // namespace
}  // namespace gyrostat
