#include "ctl/export.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "logs/log_file.h"
#include "support/lcg.h"
#include "support/temp_dir.h"
#include "unit/ctl/fake_control.h"

namespace gyrostat::ctl {
namespace {

using model::Signal;

v1::SignalValues* AddArray(v1::Report* report, Signal signal, const std::vector<float>& values) {
  v1::SignalValues* array = report->add_arrays();
  array->set_signal(static_cast<uint32_t>(signal));
  array->set_values(values.data(), values.size() * sizeof(float));
  return array;
}

void AddScalar(v1::Report* report, Signal signal, double value) {
  report->add_scalar_signals(static_cast<uint32_t>(signal));
  report->add_scalars(value);
}

// Keeps what a reader of logs makes of an export.
class Kept : public logs::RowSink {
 public:
  void OnRun(size_t, const std::string& name, const model::ModelSpec& spec, const model::AttnLogitInfo& info) override {
    run = name;
    specs.push_back(spec);
    attn = info;
  }
  void OnAttempt(size_t, const model::ModelSpec& spec, const model::AttnLogitInfo&) override { specs.push_back(spec); }
  void OnRow(const logs::Row& row) override { rows.push_back(row); }

  std::string run;
  std::vector<model::ModelSpec> specs;
  model::AttnLogitInfo attn;
  std::vector<logs::Row> rows;
};

// Two layers of two heads, three steps; then a second attempt, which goes back by one.
class ExportCommand : public ::testing::Test {
 protected:
  ExportCommand() {
    v1::ExportChunk* chunk = &control.chunks.emplace_back();
    chunk->mutable_attempt()->set_attempt(std::string(16, '\1'));
    chunk->mutable_attempt()->mutable_model()->set_layers(2);
    chunk->mutable_attempt()->mutable_model()->set_heads(2);
    v1::Report* report = NewReport(chunk, 1);
    AddScalar(report, Signal::kLoss, 2.5);
    AddArray(report, Signal::kLayerGradNorm, {0.1f, 0.5f});
    AddArray(report, Signal::kAttnLogitMax, {0, 1, 10, model::kAbsent});
    report = NewReport(chunk, 2);
    AddScalar(report, Signal::kLoss, NAN);
    AddScalar(report, Signal::kGradNorm, INFINITY);
    chunk = &control.chunks.emplace_back();
    AddScalar(NewReport(chunk, 3), Signal::kLoss, 0.1);
    request.run = "ours";
    request.export_format = "jsonl";
  }
  v1::Report* NewReport(v1::ExportChunk* chunk, int64_t step) {
    if (chunk->has_attempt() && chunk->reports_size() == 0) sequence = 0;
    v1::Report* report = chunk->add_reports();
    report->set_step(step);
    report->set_sequence(++sequence);
    report->set_boundary(sequence - 1);
    report->set_attn_logit_kind(v1::AttnLogitInfo::EXACT);
    return report;
  }
  v1::ExportChunk* NewAttempt() {
    v1::ExportChunk* chunk = &control.chunks.emplace_back();
    chunk->mutable_attempt()->set_attempt(std::string(16, '\2'));
    chunk->mutable_attempt()->mutable_attn_logit()->set_kind(v1::AttnLogitInfo::LSE_UPPER);
    return chunk;
  }
  std::string Run() {
    out.str("");
    err.str("");
    const Console console{out, err, base::SystemClock(), {}, false, [] { return Size(); }};
    code = Export(request, &control, console);
    return out.str();
  }
  Kept ReadBack() {
    const std::string path = dir.path() + "/export.jsonl";
    std::ofstream(path) << Run();
    Kept kept;
    outcome = logs::ReadLog(path, {}, &kept, nullptr);
    return kept;
  }

  uint64_t sequence = 0;
  FakeControl control;
  Request request;
  int code = -1;
  std::ostringstream out, err;
  testing::TempDir dir;
  logs::ReadOutcome outcome;
};

TEST_F(ExportCommand, JsonlIsWhatReplayReads) {
  EXPECT_EQ(Run(),
            "{\"gyrostat\":1,\"run\":\"ours\",\"attempt\":\"01010101010101010101010101010101\","
            "\"model\":{\"layers\":2,\"heads\":2},\"attn_logit\":{\"kind\":\"exact\","
            "\"scaled\":false,\"masked\":false,\"with_bias\":false,\"pre_cap\":false}}\n"
            "{\"step\":1,\"loss\":2.5,\"layer_grad_norm\":[0.1,0.5],\"attn_logit_max\":[[0,1],[10,null]]}\n"
            "{\"step\":2,\"loss\":\"NaN\",\"grad_norm\":\"Infinity\"}\n"
            "{\"step\":3,\"loss\":0.1}\n");
  EXPECT_EQ(code, kDone);
}

TEST_F(ExportCommand, WhatADaemonKnowsOfAReportIsSaidWhereItCannotBeGuessed) {
  v1::ExportChunk* chunk = &control.chunks.back();
  v1::Report* report = NewReport(chunk, 2);  // Back by one, in the same attempt.
  report->set_epoch(1);
  report->set_sequence(7);
  report->set_ledger_version(4);
  report->add_user_names("tokens");
  report->add_user_values(4096);
  report->add_user_names("lr");  // A reader would take it for the learning rate.
  report->add_user_values(0.5);
  sequence = 7;
  NewReport(chunk, 3)->set_boundary(4);
  chunk = NewAttempt();
  AddScalar(NewReport(chunk, 9), Signal::kLoss, 1);
  const std::string text = Run();
  EXPECT_NE(text.find("{\"step\":2,\"tokens\":4096,\"user\":{\"lr\":0.5},\"report\":{\"sequence\":7,\"epoch\":1,"
                      "\"ledger_version\":4}}\n{\"step\":3,\"report\":{\"epoch\":0,\"ledger_version\":0}}\n"
                      "{\"gyrostat\":1,"),
            std::string::npos)
      << text;
  const Kept kept = ReadBack();
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.losses.warnings, std::vector<std::string>());
  ASSERT_EQ(kept.rows.size(), 6u);
  const model::Report& back = kept.rows[3].report;
  EXPECT_EQ(kept.rows[3].attempt, 0u);
  EXPECT_EQ(std::tuple(back.step, back.epoch, back.sequence, back.ledger_version, back.boundary),
            std::tuple(2, 1u, 7u, 4u, 3u));
  EXPECT_EQ(back.user, (std::vector<std::pair<std::string, double>>{{"tokens", 4096}, {"lr", 0.5}}));
  EXPECT_FALSE(back.Has(Signal::kLearningRate));
  EXPECT_EQ(kept.rows[4].report.boundary, 4u);
  EXPECT_EQ(std::tuple(kept.rows[5].attempt, kept.rows[5].report.sequence), std::tuple(1u, 1u));
  ASSERT_EQ(kept.specs.size(), 2u);  // A later step alone would not tell another attempt, and its model.
  EXPECT_EQ(kept.specs[0].layers, 2u);
  EXPECT_EQ(kept.specs[1].layers, 0u);
}

TEST_F(ExportCommand, NeighboursOfOneStepStayTwoReports) {
  AddScalar(NewReport(&control.chunks.back(), 3), Signal::kLoss, 0.1);
  EXPECT_EQ(ReadBack().rows.size(), 4u);
}

TEST_F(ExportCommand, DoubledLinesAreReadOnce) {
  std::string doubled;
  std::istringstream lines(Run());
  for (std::string line; std::getline(lines, line);) doubled += line + "\n" + line + "\n";
  std::ofstream(dir.File("doubled.jsonl")) << doubled;
  Kept kept;
  outcome = logs::ReadLog(dir.File("doubled.jsonl"), {}, &kept, nullptr);
  EXPECT_EQ(kept.rows.size(), 3u);
  EXPECT_EQ(outcome.losses.skipped_rows, 3u);
}

// Any bits at all: what a daemon was sent is what a replay sees.
TEST_F(ExportCommand, EveryValueComesBackToTheLastBit) {
  testing::Lcg random(3);
  const auto bits = [&random] { return (uint64_t{random.Next()} << 32) | random.Next(); };
  for (int64_t step = 4; step < 300; ++step) {
    v1::Report* report = NewReport(&control.chunks.back(), step);
    AddScalar(report, Signal::kLoss, std::bit_cast<double>(bits()));
    std::vector<float> values;
    for (int i = 0; i < 2; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits())));
    AddArray(report, Signal::kLayerGradNorm, values);
    AddArray(report, Signal::kHiddenMs, {FLT_MAX, FLT_TRUE_MIN, -0.0f});
  }
  const Kept kept = ReadBack();
  ASSERT_EQ(kept.rows.size(), 299u);
  const auto same = [](auto a, auto b) {
    return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof a) == 0;
  };
  size_t at = 0;
  for (const v1::ExportChunk& chunk : control.chunks)
    for (const v1::Report& sent : chunk.reports()) {
      const model::Report& got = kept.rows[at++].report;
      for (int i = 0; i < sent.scalars_size(); ++i)
        EXPECT_TRUE(same(sent.scalars(i), got.Scalar(static_cast<Signal>(sent.scalar_signals(i))))) << sent.scalars(i);
      for (const v1::SignalValues& array : sent.arrays()) {
        const auto values = got.Array(static_cast<Signal>(array.signal()));
        ASSERT_EQ(values.size() * sizeof(float), array.values().size());
        for (size_t i = 0; i < values.size(); ++i) {
          float value = 0;
          std::memcpy(&value, array.values().data() + i * sizeof value, sizeof value);
          EXPECT_TRUE(same(value, values[i])) << value;
        }
      }
    }
}

TEST_F(ExportCommand, CsvHasAColumnForEachValue) {
  v1::ExportChunk* chunk = NewAttempt();  // Of another model, or none that is known.
  v1::Report* report = NewReport(chunk, 2);
  AddArray(report, Signal::kLayerGradNorm, {1, 2, 3});
  report->add_user_names("tokens");
  report->add_user_values(4096);
  request.export_format = "csv";
  EXPECT_EQ(Run(),
            "step,attempt,loss,grad_norm,layer_grad_norm/layer0,layer_grad_norm/layer1,layer_grad_norm/layer2,"
            "attn_logit_max/layer0/head0,attn_logit_max/layer0/head1,attn_logit_max/layer1/head0,"
            "attn_logit_max/layer1/head1,tokens\n"
            "1,1,2.5,,0.1,0.5,,0,1,10,,\n2,1,NaN,Infinity,,,,,,,,\n3,1,0.1,,,,,,,,,\n2,2,,,1,2,3,,,,,4096\n");
}

TEST_F(ExportCommand, AFileIsWholeOrNotThere) {
  request.out = dir.path() + "/ours.jsonl.gz";
  request.json = true;
  EXPECT_EQ(Run(), "{\"run\":\"ours\",\"file\":\"" + request.out +
                       "\",\"format\":\"jsonl\",\"reports\":3,\"attempts\":1}\n");
  EXPECT_EQ(code, kDone);
  std::ifstream in(request.out, std::ios::binary);
  char magic[2] = {};
  in.read(magic, 2);
  EXPECT_EQ(std::string(magic, 2), "\x1f\x8b");
  Kept kept;
  EXPECT_EQ(logs::ReadLog(request.out, {}, &kept, nullptr).error, "");
  EXPECT_EQ(kept.rows.size(), 3u);

  control.export_end = absl::DataLossError("a chunk is damaged");
  request.out = dir.path() + "/torn.jsonl";
  Run();
  EXPECT_EQ(code, kRefused);
  EXPECT_FALSE(std::filesystem::exists(request.out) || std::filesystem::exists(request.out + ".partial"));

  request.out = dir.path() + "/no/such/place.jsonl";
  Run();
  EXPECT_EQ(code, kRefused);
  EXPECT_NE(err.str().find("place.jsonl cannot be written: No such file"), std::string::npos) << err.str();
}

TEST_F(ExportCommand, StepsAndSignalsAreTheDaemonsToChoose) {
  request.from_step = 2;
  request.to_step = 9;
  request.signals = {"loss", "tokens"};
  Run();
  EXPECT_EQ(control.exported.ShortDebugString(),
            "run: \"ours\" from_step: 2 to_step: 9 signals: \"loss\" signals: \"tokens\"");
  EXPECT_EQ(err.str(), "gyrostatctl: no report has tokens.\n");
  EXPECT_EQ(code, kDone);
}

TEST_F(ExportCommand, ARunWithoutHistoryIsRefused) {
  control.chunks.clear();
  EXPECT_EQ(Run(), "");
  EXPECT_EQ(code, kRefused);
  control.export_end = absl::UnavailableError("gone");
  Run();
  EXPECT_EQ(code, kUnreachable);
}

}  // namespace
}  // namespace gyrostat::ctl
