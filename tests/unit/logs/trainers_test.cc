// Each trainer's log, in the small: the files of tests/corpus were made by us, and hold the quirks of their formats.
// All but those of a different kind tell the same run of 60 rows: a NaN loss in row 40, an infinite norm in row 41, a
// norm of 25 in row 30.
#include <gtest/gtest.h>

#include <cmath>

#include "logs/sniff.h"
#include "unit/logs/rows.h"

namespace gyrostat::logs {
namespace {

using model::Signal;

struct Log {
  const char* file;
  Format format;
  model::Step first, stride;
  bool norm, rate;
};

const Log kLogs[] = {
    {"hf_trainer_state.json", Format::kHfTrainer, 1, 1, true, true},
    {"llamafactory_trainer_log.jsonl", Format::kHfTrainer, 5, 5, false, true},
    {"megatron_srun.log", Format::kMegatron, 1, 1, true, true},
    {"deepspeed.log", Format::kDeepspeed, 10, 10, false, true},
    {"llmc_stdout.log", Format::kLlmc, 1, 1, true, true},
    {"llmc_main.log", Format::kLlmc, 0, 1, true, true},
    {"nanogpt.log", Format::kNanogpt, 0, 1, false, false},
    {"modded_nanogpt.txt", Format::kNanogpt, 1, 1, false, false},
    {"nanochat.log", Format::kNanogpt, 0, 1, true, false},
    {"torchtitan_ansi.log", Format::kTorchtitan, 1, 1, true, false},
    {"fairseq_json.log", Format::kFairseq, 100, 100, true, true},
    {"fairseq_text.log", Format::kFairseq, 100, 100, true, true},
    {"rows.jsonl", Format::kJsonl, 0, 1, true, true},
    {"columns.json", Format::kJson, 0, 1, true, true},
    {"pandas_nan.csv", Format::kCsv, 0, 1, true, false},
    {"semicolon_bom_crlf.csv", Format::kCsv, 0, 1, false, true},
    {"simple_value.tfevents", Format::kTensorboard, 0, 1, true, false},
    {"tensor.tfevents", Format::kTensorboard, 0, 1, true, false},
    {"absl_text.log", Format::kText, 0, 1, true, false},
    {"nemo_text.log", Format::kText, 0, 1, true, true},
    {"olmo_text.log", Format::kText, 0, 1, true, true},
    {"gyrostat.jsonl", Format::kGyrostat, 0, 1, true, true},
    {"gyrostat_export.jsonl", Format::kGyrostat, 0, 1, true, true},
};

class Trainers : public ::testing::TestWithParam<Log> {};

TEST_P(Trainers, IsRecognisedAndReadRowForRow) {
  const Log& log = GetParam();
  const std::string text = OwnLog(log.file);
  std::string error;
  EXPECT_EQ(Sniff(text, true, &error), log.format) << error;
  const RunSeen run = ReadOne(log.format, text);
  ASSERT_EQ(run.rows.size(), 60u);
  for (size_t i = 0; i < run.rows.size(); ++i) {
    const model::Report& report = run.rows[i].report;
    EXPECT_EQ(report.step, log.first + static_cast<model::Step>(i) * log.stride);
    EXPECT_EQ(run.rows[i].attempt, 0u);
    ASSERT_TRUE(report.Has(Signal::kLoss)) << i;
    EXPECT_EQ(report.Has(Signal::kGradNorm), log.norm) << i;
    EXPECT_EQ(report.Has(Signal::kLearningRate), log.rate) << i;
  }
  const std::vector<double> losses = run.Losses();
  EXPECT_NEAR(losses[0], 5, 0.05);
  EXPECT_NEAR(losses[59], 2.05, 0.05);
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_EQ(std::isnan(losses[i]), i == 40) << i;
  if (!log.norm) return;
  const std::vector<double> norms = run.Values(Signal::kGradNorm);
  EXPECT_EQ(norms[30], 25);
  EXPECT_EQ(norms[41], INFINITY);
}

INSTANTIATE_TEST_SUITE_P(Own, Trainers, ::testing::ValuesIn(kLogs), [](const auto& each) {
  std::string name = each.param.file;
  for (char& c : name)
    if (c == '.') c = '_';
  return name;
});

TEST(Megatron, ALossThatVanishesWithoutASkipWasNan) {
  const std::string tail = "grad norm: 1.0 | number of skipped iterations:   ";
  const RunSeen run = ReadOne(
      Format::kMegatron,
      " iteration        1/      10 | lm loss: 2.0E+00 | " + tail + "0 | number of nan iterations:   0 |\n" +
      " iteration        2/      10 | " + tail + "1 | number of nan iterations:   0 |\n" +
      " iteration        3/      10 | " + tail + "0 | number of nan iterations:   0 |\n" +
      " iteration        4/      10 | " + tail + "1 | number of nan iterations:   1 |\n" +
      " validation loss at iteration 4 | lm loss value: 9.0E+00 | lm loss PPL: 1.0E+01 |\n");
  ASSERT_EQ(run.rows.size(), 4u);
  EXPECT_FALSE(run.rows[1].report.Has(Signal::kLoss));  // Skipped: it says nothing.
  EXPECT_TRUE(std::isnan(run.rows[2].report.Scalar(Signal::kLoss)));
  EXPECT_TRUE(std::isnan(run.rows[3].report.Scalar(Signal::kLoss)));
}

TEST(Megatron, ReadsNanotronToo) {
  const RunSeen run = ReadOne(Format::kMegatron,
                              "iteration: 7 / 100 | consumed_tokens: 1.05M | elapsed_time_per_iteration_ms: 5.1 | "
                              "lm_loss: 10.5 | lr: 3e-4 | grad_norm: 2.3\n");
  ASSERT_EQ(run.rows.size(), 1u);
  EXPECT_EQ(run.rows[0].report.step, 7);
  EXPECT_EQ(run.rows[0].report.Scalar(Signal::kLoss), 10.5);
  EXPECT_EQ(run.rows[0].report.Scalar(Signal::kGradNorm), 2.3);
}

TEST(Deepspeed, OverflowsTellTheScaleOnce) {
  const RunSeen run = ReadOne(Format::kDeepspeed, OwnLog("deepspeed.log"));
  EXPECT_EQ(run.Values(Signal::kLossScale), (std::vector<double>{32768}));
  EXPECT_TRUE(run.rows[3].report.Has(Signal::kLossScale));
  const RunSeen pipe = ReadOne(Format::kDeepspeed,
                               "steps: 10 loss: 2.3456 iter time (s): 0.500 samples/sec: 32.0\n"
                               "steps: 20 loss: 2.2456 iter time (s): 0.500 samples/sec: 32.0\n");
  EXPECT_EQ(pipe.Losses(), (std::vector<double>{2.3456, 2.2456}));
}

TEST(Llmc, ARecordCutByAKillIsToldNotRead) {
  const Rows rows = Read(Format::kLlmc,
                         "step    1/19560 | loss     nan (+nanz)| norm    nan (+nanz)| lr 8.57e-07 | 3788.44 ms | 35%\n"
                         "step    2/19560 | loss     nan (+nanz)|slurmstepd: error: *** JOB 1 CANCELLED ***\n");
  EXPECT_EQ(rows.runs[0].rows.size(), 1u);
  EXPECT_TRUE(std::isnan(rows.runs[0].Losses()[0]));
  EXPECT_EQ(rows.losses.skipped_rows, 1u);
}

TEST(Nanogpt, ReadsBuildNanogptsFileAndStdout) {
  EXPECT_EQ(ReadOne(Format::kNanogpt, "0 val 10.95\n0 hella 0.24\n0 train 10.95\n1 train 9.5\n").Losses(),
            (std::vector<double>{10.95, 9.5}));
  const RunSeen run = ReadOne(Format::kNanogpt,
                              "step     0 | loss: 10.95 | lr 8.5e-07 | norm: 15.3 | dt: 9.1ms | tok/sec: 1,234\n");
  EXPECT_EQ(run.rows[0].report.Scalar(Signal::kGradNorm), 15.3);
}

TEST(Nanogpt, AnEvaluationCountsWhereThereIsNothingElse) {
  EXPECT_EQ(
      ReadOne(Format::kNanogpt, "step 0: train loss 4.45, val loss 4.44\nstep 200: train loss 2.4, val loss 2.5\n")
          .Losses(),
      (std::vector<double>{4.45, 2.4}));
}

TEST(Torchtitan, TheRankWithALossIsTheRun) {
  const Rows rows = Read(Format::kTorchtitan, OwnLog("torchtitan_ansi.log"));
  EXPECT_EQ(rows.runs[0].Losses().size(), 60u);
  EXPECT_NE(rows.losses.warnings[0].find("those of rank 1 were read"), std::string::npos);
}

TEST(PlainText, ProseWithNumbersIsNoRow) {
  const Rows rows = Read(Format::kText,
                         "Namespace(lr=0.1, loss='ce', steps=100)\nbest loss 2.3 so far\nstep 3 took 2.5 s\n"
                         "step=4 loss=2.5 lr=0.001\nEpoch 1 done, val loss 2.4 at step 4\n");
  ASSERT_EQ(rows.runs.size(), 1u);
  EXPECT_EQ(rows.runs[0].Losses(), (std::vector<double>{2.5}));
}

TEST(PlainText, ReadsNemosProgressBars) {
  const RunSeen run =
      ReadOne(Format::kText,
              "Epoch 0: :   1%|          | 567/1000 [01:02<09:59, v_num=0, reduced_train_loss=10.30, "
              "global_step=566.0, consumed_samples=567.0]\rEpoch 0: :   1%|     | 568/1000 [01:02<09:59, "
              "v_num=0, reduced_train_loss=10.20, global_step=567.0, consumed_samples=568.0]\n");
  EXPECT_EQ(run.Steps(), (std::vector<model::Step>{566, 567}));
}

}  // namespace
}  // namespace gyrostat::logs
