// The events of LABELS.md that are beyond argument (bold there) are found in the public logs of $GYROSTAT_CORPUS, by
// the detector whose business they are and in time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <vector>

#include "detect/catalog.h"
#include "logs/log_file.h"

namespace gyrostat::detect {
namespace {

using model::Severity;
using model::Step;

struct Event {
  const char* file;
  const char* run;       // Part of its name; "": the only run.
  const char* detector;
  Step step;             // A finding covers it, from its first step to its last.
  Step latest;           // And has been said by then.
  Severity at_least;
};

const Event kEvents[] = {
    {"hf_trainer_state_grad_spike_step22.json", "", "grad_spike", 22, 22, Severity::kInfo},
    {"megatron_grad_spikes_srun.out", "", "grad_spike", 1602, 1602, Severity::kWarning},  // It leads the loss.
    {"megatron_grad_spikes_srun.out", "", "loss_spike", 1605, 1605, Severity::kWarning},
    {"megatron_grad_spikes_srun.out", "", "grad_spike", 1830, 1830, Severity::kWarning},
    {"megatron_bigscience_3d_blowup.out", "", "loss_spike", 3, 3, Severity::kWarning},
    {"megatron_bigscience_3d_blowup.out", "", "loss_spike", 4, 4, Severity::kWarning},
    {"megatron_bigscience_3d_blowup.out", "", "divergence", 60, 60, Severity::kWarning},
    {"llmc_stdout_nan_from_step1.log", "", "nonfinite", 1, 1, Severity::kWarning},
    {"nanogpt_wandb_output_late_spikes.log", "", "loss_spike", 1256, 1256, Severity::kWarning},
    {"nanogpt_wandb_output_late_spikes.log", "", "loss_spike", 1449, 1449, Severity::kWarning},
    {"nanogpt_wandb_output_late_spikes.log", "", "loss_spike", 1522, 1522, Severity::kWarning},
    {"nanogpt_wandb_output_late_spikes.log", "", "loss_spike", 1598, 1598, Severity::kWarning},
    {"nanogpt_wandb_output_late_spikes.log", "", "loss_spike", 1685, 1685, Severity::kWarning},
    {"nanogpt_wandb_output_late_spikes.log", "", "loss_spike", 1764, 1764, Severity::kWarning},
    {"nanogpt_wandb_output_late_spikes.log", "", "loss_spike", 1851, 1851, Severity::kWarning},
    {"nanogpt_wandb_output_late_spikes.log", "", "loss_spike", 1918, 1918, Severity::kWarning},
    {"nanogpt_wandb_output_late_spikes.log", "", "loss_spike", 2007, 2007, Severity::kWarning},
    {"nanogpt_wandb_output_late_spikes.log", "", "loss_spike", 2094, 2094, Severity::kWarning},
    {"modded_nanogpt_muon_data_spikes.txt", "", "loss_spike", 919, 919, Severity::kInfo},
    {"modded_nanogpt_muon_data_spikes.txt", "", "loss_spike", 947, 947, Severity::kInfo},
    {"modded_nanogpt_muon_data_spikes.txt", "", "loss_spike", 5335, 5335, Severity::kInfo},
    {"modded_nanogpt_muon_data_spikes.txt", "", "loss_spike", 6127, 6127, Severity::kInfo},
    {"nanochat_sft_nan_step9.log", "", "divergence", 6, 6, Severity::kInfo},
    {"nanochat_sft_nan_step9.log", "", "nonfinite", 9, 9, Severity::kWarning},
    {"torchtitan_ansi_inf_grad.log", "", "grad_spike", 1, 1, Severity::kWarning},
    {"torchtitan_ansi_inf_grad.log", "", "nonfinite", 780, 780, Severity::kWarning},
    {"automodel_nan_tokens.jsonl", "", "nonfinite", 0, 0, Severity::kWarning},
    {"algoperf_deepspeech_inf_grads.csv", "", "loss_spike", 180100, 180100, Severity::kWarning},
    {"algoperf_deepspeech_inf_grads.csv", "", "grad_spike", 180100, 180100, Severity::kWarning},
    {"algoperf_deepspeech_inf_grads.csv", "", "nonfinite", 190900, 190900, Severity::kWarning},
    {"algoperf_deepspeech_inf_grads.tfevents", "", "loss_spike", 180100, 180100, Severity::kWarning},
    {"algoperf_wmt_diverged.tfevents", "", "divergence", 37043, 74098, Severity::kWarning},
    {"deepspeed_bf16_loss_crlf.csv", "", "loss_spike", 3, 3, Severity::kInfo},
    {"gptopt_columns_adamw_lr0.02_diverged.json", "", "loss_spike", 9, 9, Severity::kWarning},
    {"gptopt_columns_adamw_lr0.02_diverged.json", "", "divergence", 1070, 1070, Severity::kWarning},
    {"gptopt_columns_adamw_lr0.02_diverged.json", "", "grad_spike", 1694, 1694, Severity::kWarning},
    {"algoperf_absl_nan_step63.log", "", "loss_spike", 60, 60, Severity::kWarning},
    {"algoperf_absl_nan_step63.log", "", "loss_spike", 61, 61, Severity::kWarning},
    {"algoperf_absl_nan_step63.log", "", "nonfinite", 63, 63, Severity::kWarning},
    {"wandb_sweep_attention_logit_explosion.csv", "wwmr8tw9", "attn_logit", 5, 19, Severity::kWarning},
    {"wandb_sweep_attention_logit_explosion.csv", "g6rdipcd", "attn_logit", 12, 12, Severity::kWarning},
    {"wandb_sweep_attention_logit_explosion.csv", "gz1gpya0", "attn_logit", 12, 12, Severity::kWarning},
};

// Judges each run of a file while it is read; keeps each finding's newest state, and when each severity was said.
class Judge : public logs::RowSink {
 public:
  struct Said {
    model::Finding finding;
    std::map<Severity, Step> when;
  };
  struct Run {
    std::string name;
    std::vector<std::unique_ptr<Detector>> detectors;
    std::map<std::pair<std::string, uint64_t>, Said> said;
  };

  void OnRun(size_t run, const std::string& name, const model::ModelSpec& spec,
             const model::AttnLogitInfo&) override {
    runs.resize(std::max(runs.size(), run + 1));
    runs[run].name = name;
    if (runs[run].detectors.empty()) runs[run].detectors = MakeDetectors(DetectOptions(), spec);
  }
  void OnRow(const logs::Row& row) override {
    Run& run = runs[row.run];
    fresh_.clear();
    for (const auto& detector : run.detectors) detector->Observe(row.report, &fresh_);
    for (model::Finding& finding : fresh_) {
      Said& said = run.said[{std::string(finding.detector), finding.key}];
      said.when.emplace(finding.severity, row.report.step);
      said.finding = std::move(finding);
    }
  }

  std::vector<Run> runs;

 private:
  std::vector<model::Finding> fresh_;
};

bool Found(const Judge::Run& run, const Event& event) {
  return std::any_of(run.said.begin(), run.said.end(), [&](const auto& each) {
    const Judge::Said& said = each.second;
    const bool in_time = std::any_of(said.when.begin(), said.when.end(), [&](const auto& when) {
      return when.first >= event.at_least && when.second <= event.latest;
    });
    return each.first.first == event.detector && in_time && said.finding.step_begin <= event.step &&
           said.finding.step_end.value_or(event.step) >= event.step;
  });
}

TEST(PublicEvents, BeyondArgumentAreFound) {
  const char* folder = std::getenv("GYROSTAT_CORPUS");
  if (folder == nullptr || !std::filesystem::is_directory(folder))
    GTEST_SKIP() << "GYROSTAT_CORPUS names no folder: no public logs to judge";
  std::map<std::string, Judge> judged;
  for (const Event& event : kEvents) {
    const auto [at, fresh] = judged.try_emplace(event.file);
    if (fresh) {
      const logs::ReadOutcome outcome = logs::ReadLog(std::string(folder) + "/" + event.file, {}, &at->second, nullptr);
      ASSERT_EQ(outcome.error, "") << event.file;
    }
    bool found = false;
    for (const Judge::Run& run : at->second.runs)
      if (run.name.find(event.run) != std::string::npos) found = found || Found(run, event);
    EXPECT_TRUE(found) << event.file << " " << event.run << ": no " << event.detector << " that covers step "
                       << event.step << " and was said by " << event.latest;
  }
}

}  // namespace
}  // namespace gyrostat::detect
