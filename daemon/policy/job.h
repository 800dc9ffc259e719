// What the job on the other end is and permits, as its hello said; and whether qk_clip can be used on it at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/intervention.h"
#include "policy/run_policy.h"
#include "remedy/qk_clip.h"

namespace gyrostat::policy {

struct Job {
  model::AttemptId attempt;
  uint32_t epoch = 0;
  std::vector<std::string> allow;
  double tau_min = 0;
  model::ModelSpec model;
  model::AttnLogitInfo attn_logit;
  uint32_t world_size = 1;
  uint32_t agreement_lag = 0;  // 0: the ranks do not agree.
  bool live = false;  // Between a hello and the end of the attempt.

  bool HasMaster() const { return model.master_fp32.value_or(false); }  // Not known counts as no: the wider dead band.

  template <class Archive>
  void Fields(Archive& a) {
    a(attempt, epoch, allow, tau_min, model, attn_logit, world_size, agreement_lag, live);
  }
};

Job JobOf(const model::Hello& hello);

// Why this job takes no order of `kind` at all: not on its allow-list, ranks that do not agree. Empty: it does.
std::string ObstacleTo(model::InterventionKind kind, const Job& job);

// protocol.md §9: nothing new is begun in the last hundredth of the run.
bool IsNearlyOver(const Job& job, model::Step step);

// How this job is clipped, or the standing reason why not (protocol.md §9): not on the allow-list, ranks that do not
// agree, tau below the job's own bound, a model or maxima that cannot be clipped from.
struct ClipTerms {
  std::optional<remedy::ClipShape> shape;  // Only where `obstacle` is empty.
  double threshold = 0;                    // A head above it is clipped.
  std::string obstacle;
};
ClipTerms TermsFor(const Job& job, const QkClipOptions& options);

}  // namespace gyrostat::policy
