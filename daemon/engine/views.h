// What readers see: plain copies, safe to hold on any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/archive.h"
#include "diagnose/diagnosis.h"
#include "model/finding.h"
#include "model/intervention.h"

namespace gyrostat::engine {

enum class RunLife : uint8_t { kLive = 1, kSilent = 2, kEnded = 3 };
const char* Token(RunLife v);  // live silent ended

struct HeadMax {
  uint32_t layer = 0, head = 0;
  float value = 0;
  template <class Archive>
  void Fields(Archive& a) { a(layer, head, value); }
};

// The newest of everything about one run.
struct RunState {
  std::string run;
  model::AttemptId attempt;
  uint32_t attempts = 0;
  RunLife life = RunLife::kLive;
  model::Mode mode = model::Mode::kObserve;
  model::Step step = 0;
  uint32_t ranks = 1;
  int64_t last_report_unix_ms = 0;
  model::ModelSpec spec;
  model::AttnLogitInfo attn_logit;
  std::vector<std::string> allow;
  double tau = 0;
  model::Report last;  // The newest report, whole: arrays for the page, /metrics and show.
  std::vector<HeadMax> worst_heads;  // At most 8, largest first.
  uint32_t heads_over_tau = 0;
  std::vector<uint64_t> attn_logit_histogram;  // Observations of the whole run in each bucket of kAttnLogitBuckets (not
                                               // summed over buckets), +Inf last. NaN is not observed.
  double attn_logit_sum = 0;                   // Of the finite observations.
  double qk_clip_scale_min = 1;  // Smallest exp(-lambda) among heads.
  double headroom_steps = static_cast<double>(model::kAbsent);  // Until the residual stream overflows, at the soonest.
  std::vector<model::Finding> open_findings;
  std::optional<diagnose::Diagnosis> episode;  // The newest one, also when it is over; nothing before the first.
  std::vector<model::Intervention> open_interventions;
  uint32_t interventions_pending = 0;
  std::vector<model::Decision> recent_decisions;  // At most 16, newest last.
  uint64_t reports_total = 0, reports_dropped_total = 0;
  // Totals for counters that must not restart with the daemon.
  std::vector<std::pair<std::string, uint64_t>> findings_total;       // By "detector/severity".
  std::vector<std::pair<std::string, uint64_t>> interventions_total;  // By "kind/state".
  std::vector<std::pair<std::string, uint64_t>> outcomes_total;       // By "kind/outcome".
};

// Upper bounds of gyrostat_attention_logit; +Inf follows.
inline constexpr double kAttnLogitBuckets[] = {1, 2, 5, 10, 20, 30, 50, 100, 200, 500, 1000, 10000};

}  // namespace gyrostat::engine
