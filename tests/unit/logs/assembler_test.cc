// Which records are one step, one attempt, one run: told in JSON lines, which hand on what they hold.
#include "logs/assembler.h"

#include <cmath>

#include "unit/logs/rows.h"

namespace gyrostat::logs {
namespace {

using model::Signal;
using Steps = std::vector<model::Step>;

TEST(Assembler, NeighboursOfOneStepAreOneReport) {
  const RunSeen run = ReadOne(Format::kJsonl,
                              "{\"step\": 1, \"loss\": 2.5}\n{\"step\": 1, \"grad_norm\": 0.5}\n"
                              "{\"step\": 1, \"lr\": 0.001}\n{\"step\": 2, \"loss\": 2.4}\n");
  EXPECT_EQ(run.Steps(), (Steps{1, 2}));
  EXPECT_EQ(run.rows[0].report.Scalar(Signal::kGradNorm), 0.5);
  EXPECT_EQ(run.rows[0].report.Scalar(Signal::kLearningRate), 0.001);
  EXPECT_EQ(run.rows[0].line, 1u);
  EXPECT_EQ(run.rows[1].line, 4u);
}

TEST(Assembler, TheSameValueInOtherDigitsIsNoNewAttempt) {
  const RunSeen run = ReadOne(Format::kJsonl,
                              "{\"step\": 61, \"loss\": 31702.8}\n{\"step\": 61, \"loss\": 31702.785}\n"
                              "{\"step\": 62, \"loss\": NaN}\n{\"step\": 62, \"loss\": NaN}\n");
  EXPECT_EQ(run.Steps(), (Steps{61, 62}));
  EXPECT_EQ(run.rows.back().attempt, 0u);
  EXPECT_EQ(run.Losses()[0], 31702.8);
}

TEST(Assembler, ARepeatedOrEarlierStepIsANewAttempt) {
  const RunSeen run =
      ReadOne(Format::kJsonl,
              "{\"step\": 1, \"loss\": 5}\n{\"step\": 2, \"loss\": 4}\n{\"step\": 3, \"loss\": 3}\n"
              "{\"step\": 2, \"loss\": 4.5}\n{\"step\": 3, \"loss\": 3.5}\n{\"step\": 3, \"loss\": 3.9}\n");
  EXPECT_EQ(run.Steps(), (Steps{1, 2, 3, 2, 3, 3}));
  EXPECT_EQ(run.rows[2].attempt, 0u);
  EXPECT_EQ(run.rows[3].attempt, 1u);
  EXPECT_EQ(run.rows[5].attempt, 2u);
  EXPECT_EQ(run.rows[2].report.sequence, 3u);
  EXPECT_EQ(run.rows[3].report.sequence, 1u);
}

TEST(Assembler, ALatePartOfAStepThatIsOverIsNoRestart) {
  const Rows rows = Read(Format::kJsonl,
                         "{\"step\": 1, \"loss\": 5}\n{\"step\": 2, \"loss\": 4}\n{\"step\": 1, \"grad_norm\": 1}\n"
                         "{\"step\": 3, \"loss\": 3}\n");
  EXPECT_EQ(rows.runs[0].Steps(), (Steps{1, 2, 3}));
  EXPECT_EQ(rows.losses.skipped_rows, 1u);
}

TEST(Assembler, WritersThatMixTheirLinesDoNotOpenAttemptsWithoutEnd) {
  std::string text;
  for (int step = 0; step < 200; ++step)
    for (int writer = 0; writer < 4; ++writer)
      text += "{\"step\": " + std::to_string(step) + ", \"loss\": " + std::to_string(5 + writer) + "}\n";
  text += "{\"step\": 20, \"loss\": 5}\n{\"step\": 21, \"loss\": 5}\n";  // A real restart, far back.
  const Rows rows = Read(Format::kJsonl, text);
  const RunSeen& run = rows.runs[0];
  EXPECT_LE(run.rows[run.rows.size() - 3].attempt, 4u);
  EXPECT_GE(run.rows.size(), 200u);
  EXPECT_LE(run.rows.size(), 210u);
  EXPECT_EQ(run.rows.back().report.step, 21);
  EXPECT_EQ(run.rows.back().attempt, run.rows[run.rows.size() - 3].attempt + 1);
  ASSERT_FALSE(rows.losses.warnings.empty());
  EXPECT_NE(rows.losses.warnings[0].find("several values for one step"), std::string::npos);
}

TEST(Assembler, TheBetterNameWinsForTheWholeRun) {
  // Hugging Face's summary, and an evaluation on training data between two rows.
  const RunSeen run = ReadOne(Format::kJsonl,
                              "{\"step\": 1, \"loss\": 2}\n{\"step\": 1, \"train_loss\": 9}\n"
                              "{\"step\": 2, \"loss\": 1.9}\n{\"step\": 3, \"train_loss\": 9}\n");
  EXPECT_EQ(run.Losses(), (std::vector<double>{2, 1.9}));
  const RunSeen first = ReadOne(Format::kJsonl, "{\"step\": 1, \"train_loss\": 9}\n{\"step\": 1, \"loss\": 2}\n");
  EXPECT_EQ(first.Losses(), (std::vector<double>{2}));
}

TEST(Assembler, TellsRunsApartByAColumn) {
  const Rows rows =
      Read(Format::kJsonl,
           "{\"run_id\": \"b\", \"step\": 1, \"loss\": 2}\n{\"run_id\": \"a\", \"step\": 1, \"loss\": 3}\n"
           "{\"run_id\": \"b\", \"step\": 2, \"loss\": 1}\n");
  ASSERT_EQ(rows.runs.size(), 2u);
  EXPECT_EQ(rows.runs[0].name, "b");
  EXPECT_EQ(rows.runs[0].Losses(), (std::vector<double>{2, 1}));
  EXPECT_EQ(rows.runs[1].rows[0].attempt, 0u);
  KeyOptions options;
  options.run_column = "seed";
  const Rows seeds = Read(
      Format::kJsonl, "{\"seed\": 3, \"step\": 1, \"loss\": 2}\n{\"seed\": 4, \"step\": 1, \"loss\": 3}\n", options);
  ASSERT_EQ(seeds.runs.size(), 2u);
  EXPECT_EQ(seeds.runs[0].name, "3");
}

TEST(Assembler, AbsentIsNotZeroAndEvaluationsAreNoRows) {
  const RunSeen run = ReadOne(Format::kJsonl,
                              "{\"step\": 1, \"loss\": 2, \"grad_norm\": null}\n"
                              "{\"step\": 2, \"loss\": 9, \"split\": \"val\"}\n{\"step\": 2, \"eval_loss\": 9}\n"
                              "{\"step\": 2, \"loss\": null}\n{\"step\": 3, \"loss\": 1, \"loss_scale\": -1}\n");
  EXPECT_EQ(run.Steps(), (Steps{1, 3}));
  EXPECT_FALSE(run.rows[0].report.Has(Signal::kGradNorm));
  EXPECT_FALSE(run.rows[1].report.Has(Signal::kLossScale));
}

TEST(Assembler, RowsWithoutAnyStepAreNumbered) {
  const Rows rows =
      Read(Format::kJsonl, "{'lr': 0.1, 'name': 'x'}\n{'loss': 2.5, 'epoch': 0.1}\n{'loss': 2.4, 'epoch': 0.2}\n");
  EXPECT_EQ(rows.runs[0].Steps(), (Steps{0, 1}));
  ASSERT_EQ(rows.losses.warnings.size(), 1u);
  EXPECT_NE(rows.losses.warnings[0].find("gives no steps"), std::string::npos);
}

TEST(Assembler, ARowThatLostItsStepIsSkippedAndCounted) {
  const Rows rows = Read(Format::kJsonl, "{\"step\": 1, \"loss\": 2}\n{\"loss\": 2}\n{\"step\": 1e300, \"loss\": 2}\n");
  EXPECT_EQ(rows.runs[0].Steps(), (Steps{1}));
  EXPECT_EQ(rows.losses.skipped_rows, 2u);
  EXPECT_NE(rows.losses.warnings[0].find("line 2 was skipped: it has no step"), std::string::npos);
}

TEST(Assembler, CellsBecomeAnArrayWithHolesForWhatIsNotMeasured) {
  const RunSeen run = ReadOne(Format::kJsonl,
                              "{\"step\": 1, \"logits/layer0/max_p95\": 3, \"logits/layer2/max_p95\": 5}\n"
                              "{\"step\": 2, \"logits/layer2/max_p95\": NaN}\n");
  const auto first = run.rows[0].report.Array(Signal::kAttnLogitMax);
  EXPECT_EQ(std::vector<float>(first.begin(), first.end()), (std::vector<float>{3, model::kAbsent, 5}));
  EXPECT_EQ(run.rows[0].report.attn_logit_kind, model::LogitKind::kSampledLower);
  EXPECT_EQ(run.rows[1].report.Array(Signal::kAttnLogitMax).size(), 3u);
  EXPECT_TRUE(std::isnan(run.rows[1].report.Array(Signal::kAttnLogitMax)[2]));
  EXPECT_EQ(run.spec.layers, 3u);
  EXPECT_EQ(run.spec.heads, 1u);
}

TEST(Assembler, CellsOfHeadsArriveInAnyOrder) {
  const RunSeen run = ReadOne(Format::kJsonl,
                              "{\"step\": 1, \"attn_logit_max/layer0/head0\": 1, \"attn_logit_max/layer1/head0\": 2, "
                              "\"attn_logit_max/layer0/head1\": 3, \"attn_logit_max/layer1/head1\": 4}\n");
  const auto array = run.rows[0].report.Array(Signal::kAttnLogitMax);
  EXPECT_EQ(std::vector<float>(array.begin(), array.end()), (std::vector<float>{1, 3, 2, 4}));
  EXPECT_EQ(run.spec.heads, 2u);
}

}  // namespace
}  // namespace gyrostat::logs
