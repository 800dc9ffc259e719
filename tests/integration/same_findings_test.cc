// The same reports give the same findings, bit for bit: live, saved and loaded at any step, judged by replay, and
// exported to a file that replay reads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ctl/export_rows.h"
#include "ctl/judge.h"
#include "ctl/replayed.h"
#include "engine/run.h"
#include "logs/log_file.h"
#include "rpc/render.h"
#include "support/lcg.h"
#include "support/plain_run.h"
#include "support/recorded_run.h"
#include "support/temp_dir.h"

namespace gyrostat {
namespace {

using model::Signal;

// What a job says: hellos and reports, in order.
using Said = std::vector<engine::EventBody>;

std::string Bytes(const std::vector<model::Finding>& findings) {
  base::ByteWriter out;
  for (const model::Finding& each : findings) base::SaveTo(&out, each);
  return out.Take();
}

// As a shard would: each finding as it was last said. Between two events, every `every`-th time, the run is saved and
// another one loads it; 0: never.
std::vector<model::Finding> Live(const Said& said, size_t every) {
  auto run = std::make_unique<engine::Run>("replay", 1, engine::RunOptions());
  engine::RunOutput out;
  std::map<uint64_t, model::Finding> by_id;
  engine::Event event;
  for (size_t i = 0; i < said.size(); ++i) {
    event.at = {static_cast<int64_t>(100 * i), static_cast<int64_t>(1700000000000 + 100 * i)};
    event.body = said[i];
    run->Apply(event, &out);
    EXPECT_TRUE(out.status.ok()) << out.status;
    for (const model::Finding& each : out.findings) by_id[each.id] = each;
    for (const engine::EpisodeChange& change : out.episodes)
      for (const uint64_t id : change.joined) by_id[id].episode = change.diagnosis.episode;
    if (every == 0 || i % every != 0) continue;
    const std::string saved = run->Save();
    run = std::make_unique<engine::Run>("another", 9, engine::RunOptions());
    EXPECT_TRUE(run->Load(saved));
    EXPECT_EQ(run->Save(), saved) << "after event " << i;
  }
  std::vector<model::Finding> findings;
  for (const auto& [id, finding] : by_id) findings.push_back(finding);
  return findings;
}

std::vector<model::Finding> Judged(const Said& said) {
  const auto judge = ctl::MakeJudge("gyrostat", {}, {}, {});
  for (const engine::EventBody& body : said) {
    if (const auto* hello = std::get_if<engine::HelloEvent>(&body)) {
      judge->OnModel(hello->hello.model, hello->hello.attn_logit);
      judge->OnAttempt();
    } else {
      judge->OnReport(std::get<engine::ReportEvent>(body).report);
    }
  }
  return judge->Findings();
}

// The way of `gyrostatctl export RUN | gyrostatctl replay -`.
std::vector<model::Finding> Exported(const Said& said) {
  ctl::JsonlRows rows("run");
  std::string text;
  v1::ExportChunk chunk;
  for (const engine::EventBody& body : said) {
    if (const auto* hello = std::get_if<engine::HelloEvent>(&body)) {
      chunk.Clear();
      rpc::ToWire(hello->hello, hello->hello.attempt, chunk.mutable_attempt());
      continue;
    }
    rpc::ToWire(std::get<engine::ReportEvent>(body).report, {}, chunk.add_reports());
    rows.Append(chunk, &text);
    chunk.Clear();
  }
  const testing::TempDir dir;
  std::ofstream(dir.File("run.jsonl")) << text;
  ctl::ReplayOptions options;
  options.rules = {"gyrostat"};
  ctl::Replay replay(options);
  const logs::ReadOutcome outcome = logs::ReadLog(dir.File("run.jsonl"), {}, &replay, nullptr);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.losses.skipped_rows, 0u);
  std::vector<model::Finding> findings;
  for (const ctl::Replayed& run : replay.Take("run.jsonl", outcome)) {
    EXPECT_EQ(run.losses.warnings, std::vector<std::string>());
    for (const ctl::RuledFinding& each : run.findings) findings.push_back(each.finding);
  }
  return findings;
}

// `every` as of Live. Adds the detectors that spoke to `*spoke`.
void ExpectTheSame(const Said& said, size_t every, std::set<std::string>* spoke) {
  const std::vector<model::Finding> live = Live(said, 0);
  for (const model::Finding& each : live) spoke->insert(each.detector);
  const std::string wanted = Bytes(live);
  EXPECT_EQ(Bytes(Live(said, every)), wanted);
  EXPECT_EQ(Bytes(Judged(said)), wanted);
  EXPECT_EQ(Bytes(Exported(said)), wanted);
}

// A job of small runs, to which things happen.
class Training {
 public:
  explicit Training(uint64_t seed) : random_(seed) { Start(1); }

  void Start(uint8_t attempt, uint32_t heads = testing::kPlainHeads, uint32_t epoch = 0) {
    hello_ = testing::PlainHello("run", testing::IdOf(attempt));
    hello_.model.heads = heads;
    hello_.model.norm_placement = model::NormPlacement::kPost;
    hello_.model.norm_eps = 1e-5;
    hello_.model.schedule_peak = 3e-4;
    hello_.epoch = epoch;
    said_.push_back(engine::HelloEvent{hello_});
    sequence_ = boundary_ = 0;
    epoch_ = epoch;
  }
  // A report of the next step, which `change` may spoil.
  template <class Change>
  void Go(int steps, const Change& change) {
    for (int i = 0; i < steps; ++i) {
      model::Report report = testing::PlainReport(static_cast<uint64_t>(++step_));
      report.sequence = ++sequence_;
      report.boundary = boundary_++;
      report.epoch = epoch_;
      report.MutableArray(Signal::kAttnLogitMax).resize(size_t{testing::kPlainLayers} * hello_.model.heads, 7.f);
      report.SetScalar(Signal::kLearningRate, 3e-4);
      report.SetScalar(Signal::kLoss, report.Scalar(Signal::kLoss) * (1 + 0.01 * random_.Normal()));
      report.SetScalar(Signal::kGradNorm, report.Scalar(Signal::kGradNorm) * std::exp(0.1 * random_.Normal()));
      change(i, &report);
      said_.push_back(engine::ReportEvent{hello_.attempt, report});
    }
  }
  void Go(int steps) {
    Go(steps, [](int, model::Report*) {});
  }
  void BackTo(model::Step step) { step_ = step - 1; }
  void LoseReports(uint64_t count) { sequence_ += count, boundary_ += count, step_ += static_cast<int64_t>(count); }
  void NextEpoch() { ++epoch_; }
  const Said& said() const { return said_; }

 private:
  testing::Lcg random_;
  Said said_;
  model::Hello hello_;
  model::Step step_ = 0;
  uint64_t sequence_ = 0, boundary_ = 0;
  uint32_t epoch_ = 0;
};

void Spike(int, model::Report* report) {
  report->SetScalar(Signal::kLoss, 3 * report->Scalar(Signal::kLoss));
  report->SetScalar(Signal::kGradNorm, 30 * report->Scalar(Signal::kGradNorm));
}

void Runaway(int i, model::Report* report) {
  report->MutableArray(Signal::kAttnLogitMax)[1] = 9 * std::exp(0.05f * static_cast<float>(i));
  report->ledger_version = i > 60 ? 3 : 0;
}

void Broken(int i, model::Report* report) {
  report->SetScalar(Signal::kLoss, i % 2 == 0 ? NAN : INFINITY);
  report->MutableArray(Signal::kAttnLogitMax)[2] = INFINITY;
  report->MutableArray(Signal::kLayerGradNorm)[1] = model::kAbsent;
}

Training Spiking() {
  Training job(1);
  job.Go(150);
  job.Go(4, Spike);
  job.Go(100);
  return job;
}

Training RunningAway() {
  Training job(2);
  job.Go(120);
  job.Go(110, Runaway);
  return job;
}

Training Breaking() {
  Training job(3);
  job.Go(140);
  job.Go(1, Broken);
  job.Go(20);
  job.Go(60, Broken);
  return job;
}

// Attempts that go back, on, and on with another model; a spike is open when the first one ends.
Training Restarting() {
  Training job(4);
  job.Go(150);
  job.Go(2, Spike);
  job.Start(2);
  job.BackTo(121);
  job.Go(60);
  job.Start(3, testing::kPlainHeads, 2);
  job.Go(40);
  job.Start(4, 3);
  job.Go(140, Runaway);
  return job;
}

// Within one attempt: a rollback, a step that repeats, reports that were lost.
Training RollingBack() {
  Training job(5);
  job.Go(150);
  job.Go(2, Spike);
  job.NextEpoch();
  job.BackTo(100);
  job.Go(70);
  job.BackTo(160);
  job.Go(50);
  job.LoseReports(17);
  job.Go(150);
  job.Go(5, Spike);
  job.Go(30);
  return job;
}

// Batches and the rate jump, which forgives what follows; the report says so in a user scalar. Some reports hold
// nothing else.
Training Rebatching() {
  Training job(6);
  const auto tokens = [](double count) {
    return [count](int i, model::Report* report) {
      report->user = {{"lr", 0.5}, {"tokens", count}, {"epoch", i}};
      report->SetScalar(Signal::kLogZ, 5);
      if (i % 50 != 49) return;
      const model::Report whole = *report;
      report->Clear();
      report->sequence = whole.sequence, report->boundary = whole.boundary, report->step = whole.step;
      report->user = whole.user;
    };
  };
  job.Go(200, tokens(4096));
  job.Go(150, [&](int i, model::Report* report) {
    tokens(32768)(i, report);
    if (report->Has(Signal::kLoss)) Spike(i, report);
    report->attn_logit_kind = model::LogitKind::kSampledLower;
  });
  return job;
}

TEST(SameFindings, OfOwnRunsSavedAndLoadedAtEveryStep) {
  std::set<std::string> spoke;
  const std::map<std::string, Training (*)()> jobs = {
      {"spiking", Spiking}, {"running away", RunningAway}, {"breaking", Breaking},
      {"restarting", Restarting}, {"rolling back", RollingBack}, {"rebatching", Rebatching}};
  for (const auto& [name, job] : jobs) {
    SCOPED_TRACE(name);
    ExpectTheSame(job().said(), 1, &spoke);
  }
  for (const char* detector : {"loss_spike", "grad_spike", "attn_logit", "nonfinite"})
    EXPECT_TRUE(spoke.contains(detector)) << detector << " is silent; there spoke " << ::testing::PrintToString(spoke);
}

TEST(SameFindings, OfRecordedRuns) {
  const char* folder = std::getenv("GYROSTAT_RUNS");
  if (folder == nullptr) GTEST_SKIP() << "GYROSTAT_RUNS is not set: no recorded runs to judge";
  std::set<std::string> spoke;
  int runs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gz") continue;
    SCOPED_TRACE(entry.path().filename());
    std::string error;
    const testing::RecordedRun recorded = testing::ReadRecordedRun(entry.path(), &error);
    ASSERT_EQ(error, "");
    Said said;
    model::Hello hello = testing::PlainHello("run", testing::IdOf(1));
    hello.model = recorded.spec;
    said.push_back(engine::HelloEvent{hello});
    for (const model::Report& report : recorded.reports) said.push_back(engine::ReportEvent{hello.attempt, report});
    ExpectTheSame(said, 7, &spoke);  // Every step, as own runs have it, would take minutes under a sanitizer.
    ++runs;
  }
  EXPECT_GE(runs, 40);
  EXPECT_GE(spoke.size(), 5u);
}

}  // namespace
}  // namespace gyrostat
