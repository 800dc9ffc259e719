// Rules that judge a replayed run: gyrostat's own, and those of other tools beside them (detect/rivals).
//
// gyrostat's run through the daemon's own state machine (engine/run.h): the same reports give the same findings, bit
// for bit, live and replayed. Not thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/diagnosis.h"
#include "engine/run_options.h"
#include "model/finding.h"
#include "model/model_spec.h"
#include "model/report.h"

namespace gyrostat::ctl {

class Judge {
 public:
  virtual ~Judge() = default;
  virtual std::string_view rules() const = 0;  // As --rules takes it.

  // The job starts, or starts again. Comes before its first report.
  virtual void OnAttempt() = 0;
  // The attempts to come are of this model. Before OnAttempt.
  virtual void OnModel(const model::ModelSpec& spec, const model::AttnLogitInfo& attn) = 0;
  // Shapes fit the spec; steps rise within an attempt.
  virtual void OnReport(const model::Report& report) = 0;

  // In the order in which they were first said; each as it was last said.
  virtual std::vector<model::Finding> Findings() const = 0;
  // In order of their begin, each as it was last said. Other tools have none.
  virtual std::vector<diagnose::Diagnosis> Episodes() const { return {}; }
};

// What --rules takes, `all` apart.
std::span<const std::string_view> RuleNames();

// `rules` is one of RuleNames(); `thresholds` are gyrostat's own, those of other tools are fixed.
std::unique_ptr<Judge> MakeJudge(std::string_view rules, const model::ModelSpec& spec,
                                 const model::AttnLogitInfo& attn, const engine::RunOptions& thresholds);

}  // namespace gyrostat::ctl
