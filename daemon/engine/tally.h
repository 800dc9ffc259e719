// What readers want to know about a run beyond its state: worst heads, the histogram of attention logits, totals that
// must not restart with the daemon, the last decisions. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/archive.h"
#include "engine/views.h"
#include "model/intervention.h"
#include "model/model_spec.h"
#include "model/report.h"

namespace gyrostat::engine {

class Tally {
 public:
  void TakeReport(const model::Report& report, const model::ModelSpec& spec, double tau);
  // Counts each intent once per state and once per outcome.
  void TakeInterventions(const std::vector<model::Intervention>& changed);
  void TakeDecisions(const std::vector<model::Decision>& decisions);

  // Writes its part of a view.
  void Show(RunState* view) const;

  template <class Archive>
  void Fields(Archive& a) {
    a(worst_, heads_over_tau_, histogram_, sum_, states_, interventions_, outcomes_, decisions_);
  }

 private:
  void TakeLogits(std::span<const float> maxima, const model::ModelSpec& spec, double tau);
  void CountLogits(std::span<const float> block, double tau);

  std::vector<HeadMax> worst_;  // Of the newest report that had them.
  uint32_t heads_over_tau_ = 0;
  std::vector<uint64_t> histogram_;
  double sum_ = 0;
  // State and outcome of each open intent when it was last counted.
  std::map<std::string, std::pair<model::InterventionState, bool>> states_;
  std::map<std::string, uint64_t> interventions_, outcomes_;
  std::deque<model::Decision> decisions_;
};

}  // namespace gyrostat::engine
