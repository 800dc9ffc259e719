// CSV, JSON documents, event files: what is not one row a line.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "logs/csv.h"
#include "logs/tensorboard.h"
#include "logs/tfrecord.h"
#include "unit/logs/rows.h"

namespace gyrostat::logs {
namespace {

using model::Signal;

TEST(Csv, QuotedCellsMayHoldSeparatorsAndLineEnds) {
  const RunSeen run = ReadOne(Format::kCsv, "step,\"note\",loss\n1,\"a, \"\"b\"\"\nc\",2.5\n2,,2.4\n");
  EXPECT_EQ(run.Losses(), (std::vector<double>{2.5, 2.4}));
  EXPECT_EQ(run.rows[1].line, 4u);
}

TEST(Csv, AnEmptyRowIsNanAndAnEvaluationIsNot) {
  const RunSeen run = ReadOne(Format::kCsv, "global_step,grad_norm,loss,score\n0,1,2,\n1,,,0.5\n2,1,2,\n3,,,\n4,1,,\n");
  EXPECT_EQ(run.Steps(), (std::vector<model::Step>{0, 2, 3, 4}));
  EXPECT_TRUE(std::isnan(run.rows[2].report.Scalar(Signal::kLoss)));
  EXPECT_TRUE(std::isnan(run.rows[2].report.Scalar(Signal::kGradNorm)));
  EXPECT_FALSE(run.rows[3].report.Has(Signal::kLoss));  // Sparse, not NaN: the norm is there.
}

TEST(Csv, ARowOfAnotherLengthIsSkipped) {
  const Rows rows = Read(Format::kCsv, "step,loss\n1,2\n2,3,4\n\n3,5\n4");
  EXPECT_EQ(rows.runs[0].Losses(), (std::vector<double>{2, 5}));
  EXPECT_EQ(rows.losses.skipped_rows, 1u);
  EXPECT_EQ(rows.losses.warnings, (std::vector<std::string>{"line 3 was skipped: it has 3 cells, wanted 2",
                                                            "the last line is cut off in the middle"}));
}

TEST(Csv, TabsAndALastLineWithoutItsEnd) {
  EXPECT_EQ(ReadOne(Format::kCsv, "step\tloss\n1\t2\n2\t3").Losses(), (std::vector<double>{2, 3}));
  EXPECT_EQ(SeparatorOf("a;b;c,d"), ';');
  EXPECT_EQ(SeparatorOf("abc"), 0);
}

TEST(Wandb, RunsAreRowsOrColumns) {
  const Rows rows = Read(Format::kWandb, OwnLog("wandb_runs.csv"));
  ASSERT_EQ(rows.runs.size(), 2u);
  EXPECT_EQ(rows.runs[0].name, "aaa111");
  EXPECT_EQ(rows.runs[0].spec.layers, 3u);  // Known from the header, before the first row with logits.
  EXPECT_EQ(rows.runs[0].rows.size(), 60u);
  const Rows chart = Read(Format::kWandb, OwnLog("wandb_chart.csv"));
  ASSERT_EQ(chart.runs.size(), 2u);
  EXPECT_EQ(chart.runs[0].name, "red-sun-1");
  EXPECT_EQ(chart.runs[1].name, "blue-sky-2");
  EXPECT_NEAR(chart.runs[1].Losses()[0] - chart.runs[0].Losses()[0], 0.5, 1e-12);
}

TEST(Document, TheSummaryOfHuggingFaceIsNoRow) {
  const RunSeen run = ReadOne(Format::kHfTrainer,
                              "{\"log_history\": [{\"step\": 1, \"train_loss\": 7, \"train_runtime\": 1.0},\n"
                              "{\"step\": 2, \"loss\": 3}], \"epoch\": 1}");
  EXPECT_EQ(run.Losses(), (std::vector<double>{3}));
  EXPECT_EQ(run.rows[0].line, 2u);
}

TEST(Document, AFileCutInTheMiddleKeepsItsRows) {
  const Rows rows = Read(Format::kHfTrainer, "{\"log_history\": [{\"step\": 1, \"loss\": 3}, {\"step\": 2, \"lo");
  EXPECT_EQ(rows.runs[0].Losses(), (std::vector<double>{3}));
  EXPECT_NE(rows.losses.warnings[0].find("ends in the middle"), std::string::npos);
}

TEST(Document, WhatIsNoJsonIsToldWithItsLine) {
  const Rows rows = Read(Format::kHfTrainer, "{\"log_history\": [{\"step\": 1, \"loss\": 3},\n\n{\"step\" 2}]}");
  EXPECT_EQ(rows.runs[0].Losses(), (std::vector<double>{3}));
  EXPECT_EQ(rows.losses.warnings[0],
            "line 3 was skipped: it is no JSON: wanted a colon behind a key; nothing behind it was read");
}

TEST(Document, StringNanMeansNotLoggedOnlyInGoldenValues) {
  const Rows golden = Read(Format::kJson, OwnLog("golden_values.json"));
  EXPECT_EQ(golden.runs[0].rows.size(), 50u);
  EXPECT_EQ(golden.runs[0].rows[0].report.step, 11);
  const RunSeen list =
      ReadOne(Format::kJson, R"({"lm loss": {"start_step": 5, "step_interval": 10, "values": [3, "nan", 2]}})");
  EXPECT_EQ(list.Steps(), (std::vector<model::Step>{5, 25}));
  const RunSeen columns = ReadOne(Format::kJson, R"({"losses": [3, "NaN", 2]})");
  EXPECT_TRUE(std::isnan(columns.Losses()[1]));
}

TEST(Document, ColumnsMayNameTheirStepsAndRuns) {
  const RunSeen run = ReadOne(Format::kJson, R"({"steps": [10, 20], "loss": [3, 2], "val_loss": [9]})");
  EXPECT_EQ(run.Steps(), (std::vector<model::Step>{10, 20}));
  const Rows two = Read(Format::kJson, R"({"a": {"loss": [3, 2]}, "b": {"loss": [5]}})");
  ASSERT_EQ(two.runs.size(), 2u);
  EXPECT_EQ(two.runs[1].name, "b");
  EXPECT_EQ(ReadOne(Format::kJson, R"({"loss": {"1": 3, "2": 2}})").Losses(), (std::vector<double>{3, 2}));
  EXPECT_EQ(ReadOne(Format::kJson, R"([{"step": 1, "loss": 3}, {"step": 2, "loss": 2}])").Losses(),
            (std::vector<double>{3, 2}));
}

TEST(Gyrostat, TheHeaderTellsTheModel) {
  const RunSeen run = ReadOne(Format::kGyrostat, OwnLog("gyrostat.jsonl"));
  EXPECT_EQ(run.name, "ours");
  EXPECT_EQ(run.spec.layers, 2u);
  EXPECT_EQ(run.spec.norm_placement, model::NormPlacement::kPre);
  EXPECT_EQ(run.spec.schedule_kind, model::ScheduleKind::kConst);
  EXPECT_EQ(run.spec.warmup_steps, 10u);
  EXPECT_EQ(run.attn.kind, model::LogitKind::kExact);
  EXPECT_TRUE(run.attn.masked);
  const model::Report& report = run.rows[5].report;
  EXPECT_EQ(report.attn_logit_kind, model::LogitKind::kExact);
  const auto logits = report.Array(Signal::kAttnLogitMax);
  EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()), (std::vector<float>{8, 4, 5, model::kAbsent}));
  EXPECT_EQ(report.Array(Signal::kLayerGradNorm)[1], model::kAbsent);
}

// CRC32C of "123456789" is 0xe3069283 (RFC 3720 B.4 has the polynomial; the value is the standard check).
TEST(Tfrecord, ChecksumsAreTensorflows) {
  const uint32_t crc = 0xe3069283u;
  EXPECT_EQ(MaskedCrc32c("123456789"), ((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

TEST(Tensorboard, ATornTailIsAcceptedAndADamagedRecordPassedOver) {
  std::string bytes = OwnLog("simple_value.tfevents");
  const Rows whole = Read(Format::kTensorboard, bytes);
  EXPECT_EQ(whole.runs[0].rows.size(), 60u);
  EXPECT_EQ(whole.losses.skipped_rows, 0u);
  EXPECT_NE(whole.losses.warnings[0].find("cut off"), std::string::npos);
  const size_t tag = bytes.find("train/loss", 2000);
  ASSERT_NE(tag, std::string::npos);
  bytes[tag] = 'T';
  const Rows damaged = Read(Format::kTensorboard, bytes);
  EXPECT_EQ(damaged.losses.skipped_rows, 1u);
  EXPECT_EQ(damaged.runs[0].Losses().size(), 59u);
}

TEST(Tensorboard, AWrongLengthEndsTheReading) {
  std::string bytes = OwnLog("tensor.tfevents");
  const size_t at = bytes.size() / 2;
  // The next record header behind `at`: lengths here are below 256, so seven zero bytes follow the first.
  const size_t zeros = bytes.find(std::string(7, '\0'), at);
  ASSERT_NE(zeros, std::string::npos);
  bytes[zeros - 1] = static_cast<char>(bytes[zeros - 1] ^ 1);
  const Rows rows = Read(Format::kTensorboard, bytes);
  EXPECT_EQ(rows.losses.skipped_rows, 1u);
  EXPECT_LT(rows.runs[0].rows.size(), 60u);
  EXPECT_GT(rows.runs[0].rows.size(), 20u);
}

TEST(Tensorboard, ReadsEveryKindOfScalar) {
  const auto bytes = [](std::initializer_list<int> values) {
    std::string out;
    for (const int each : values) out.push_back(static_cast<char>(each));
    return out;
  };
  EXPECT_EQ(ScalarOfTensor(bytes({8, 1, 0x2a, 4, 0, 0, 0x20, 0x40})), 2.5);                   // float_val, packed.
  EXPECT_EQ(ScalarOfTensor(bytes({8, 1, 0x2d, 0, 0, 0x20, 0x40})), 2.5);                      // float_val, alone.
  EXPECT_EQ(ScalarOfTensor(bytes({8, 2, 0x22, 8, 0, 0, 0, 0, 0, 0, 0x04, 0x40})), 2.5);       // double content.
  EXPECT_EQ(ScalarOfTensor(bytes({8, 3, 0x3a, 1, 7})), 7);                                    // int_val.
  EXPECT_EQ(ScalarOfTensor(bytes({8, 14, 0x22, 2, 0x20, 0x40})), 2.5);                        // bfloat16 content.
  EXPECT_EQ(ScalarOfTensor(bytes({8, 19, 0x22, 2, 0x00, 0x41})), 2.5);                        // half content.
  EXPECT_FALSE(ScalarOfTensor(bytes({8, 1, 0x12, 4, 0x12, 2, 8, 2, 0x22, 8, 0, 0, 0, 0, 0, 0, 0, 0})));  // Two of them.
  EXPECT_FALSE(ScalarOfTensor(bytes({8, 7, 0x42, 1, 'a'})));                                  // A string.
  EXPECT_FALSE(ScalarOfTensor(""));
}

}  // namespace
}  // namespace gyrostat::logs
