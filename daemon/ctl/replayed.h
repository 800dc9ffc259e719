// Runs of a file while it is read: rows go in, judges judge them, pictures are kept; then each run is one answer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ctl/curve.h"
#include "ctl/judge.h"
#include "engine/run_options.h"
#include "logs/assembler.h"
#include "logs/log_file.h"
#include "stats/spike_score.h"

namespace gyrostat::ctl {

struct RuledFinding {
  std::string rules;
  model::Finding finding;
};

// One run as `replay` tells it.
struct Replayed {
  std::string file, run;
  logs::Format format = logs::Format::kAuto;
  model::ModelSpec spec;
  uint64_t steps = 0;  // Distinct ones.
  uint32_t attempts = 0;
  model::Step first_step = 0, last_step = 0;  // Smallest and largest.
  std::vector<model::Signal> signals;
  logs::Losses losses;  // Of the whole file.
  std::optional<double> spike_score_loss, spike_score_grad_norm;  // Percent; nothing: fewer values than its window.
  std::vector<RuledFinding> findings;
  std::vector<diagnose::Diagnosis> episodes;  // Of gyrostat's rules, in order of their begin.
  std::map<model::Signal, Curve> curves;      // Of arrays: the worst value.
  std::map<model::Signal, LayerMap> layers;
  std::map<model::Signal, HeadMap> heads;  // Of signals with several heads a layer.
};

Worst WorstOf(model::Signal signal);

// What --model says, over what the file says, and the thresholds of --config.
struct ReplayOptions {
  std::optional<model::ModelSpec> model;
  std::vector<std::string> rules;
  engine::RunOptions thresholds;  // Of gyrostat's rules.
};

class Replay : public logs::RowSink {
 public:
  explicit Replay(const ReplayOptions& options);
  ~Replay() override;

  void OnRun(size_t run, const std::string& name, const model::ModelSpec& spec,
             const model::AttnLogitInfo& attn) override;
  void OnAttempt(size_t run, const model::ModelSpec& spec, const model::AttnLogitInfo& attn) override;
  void OnRow(const logs::Row& row) override;

  // The runs, in the order of the file. Once.
  std::vector<Replayed> Take(const std::string& file, const logs::ReadOutcome& outcome);

 private:
  struct Run;
  void Picture(const model::Report& report, Run* run);
  model::ModelSpec SpecOf(const model::ModelSpec& of_file) const;
  const model::Report& Fitting(const model::Report& report, Run* run);

  ReplayOptions options_;
  std::vector<std::unique_ptr<Run>> runs_;
  model::Report fitting_;
};

}  // namespace gyrostat::ctl
