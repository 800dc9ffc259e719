#include "policy/job.h"

#include <algorithm>

#include "policy/words.h"

namespace gyrostat::policy {
namespace {

std::string ObstacleOf(const Job& job, const QkClipOptions& options, ClipTerms* terms) {
  if (std::string why = ObstacleTo(model::InterventionKind::kQkClip, job); !why.empty()) return why;
  if (options.tau < job.tau_min)
    return "tau is " + Number(options.tau) + ", below the job's tau_min of " + Number(job.tau_min);
  std::string why;
  terms->shape = remedy::ShapeFor(job.model, options.variant, &why);
  if (!terms->shape) return why;
  return remedy::CheckMaxima(job.attn_logit, job.model.logit_softcap.has_value());
}

}  // namespace

Job JobOf(const model::Hello& hello) {
  return {.attempt = hello.attempt,
          .epoch = hello.epoch,
          .allow = hello.allow,
          .tau_min = hello.tau_min,
          .model = hello.model,
          .attn_logit = hello.attn_logit,
          .world_size = hello.world_size,
          .agreement_lag = hello.agreement_lag,
          .live = true};
}

std::string ObstacleTo(model::InterventionKind kind, const Job& job) {
  const char* token = model::Token(kind);
  if (std::find(job.allow.begin(), job.allow.end(), token) == job.allow.end())
    return std::string(token) + " is not on the job's allow-list";
  if (job.world_size > 1 && job.agreement_lag == 0)
    return "the job has " + std::to_string(job.world_size) +
           " ranks that do not agree, wanted 1, or a client that was given the job's collective";
  return {};
}

bool IsNearlyOver(const Job& job, model::Step step) {
  const uint64_t total = job.model.total_steps.value_or(0);
  return total >= 100 && step > 0 && static_cast<uint64_t>(step) >= total - total / 100;
}

ClipTerms TermsFor(const Job& job, const QkClipOptions& options) {
  ClipTerms terms;
  terms.obstacle = ObstacleOf(job, options, &terms);
  if (!terms.obstacle.empty()) terms.shape.reset();
  const model::ClipVariant variant = terms.shape ? terms.shape->variant : options.variant;
  terms.threshold = remedy::ClipThreshold(options.tau, variant, job.HasMaster());
  return terms;
}

}  // namespace gyrostat::policy
