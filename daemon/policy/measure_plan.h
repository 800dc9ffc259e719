// The numbers of a measure: which registers its order sets to what, from the freshest report. Bounds are those of
// design.md §6: outside one it is refused with a sentence, never clamped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policy/job.h"
#include "policy/measures.h"
#include "policy/proposal.h"

namespace gyrostat::policy {

// What a plan is made from.
struct PlanView {
  const Job& job;
  const PolicyOptions& options;
  const Measures& measures;
  model::Boundary at = 0;  // The first boundary that the order can govern.
};

struct Plan {
  model::InterventionKind kind = model::InterventionKind::kLrScale;  // Of the order.
  std::vector<model::RegisterSet> sets;
  uint32_t ramp = 0;  // Boundaries.
  std::string what;   // A clause: "the warm-up is stretched to step 700".
};

// The order that does what is wished, or nothing and why not.
std::optional<Plan> PlanMeasure(const Proposal& wish, const PlanView& view, std::string* why);

// protocol.md §7.4: what goes before deepnorm_alpha. lr_scale 0.3 for 50 boundaries, since Adam's second moments lag
// behind gradients that come back; the optimizer's betas are not known here. A plan without sets: the rate is held
// down already.
std::optional<Plan> PlanCompanion(const PlanView& view, std::string* why);

// This ray once more, moved to the boundaries of this attempt.
Plan PlanRay(const remedy::Ray& ray, const PlanView& view);

// The extension that an order of warmup_extension carries; nothing where it is not whole.
std::optional<remedy::WarmupExtension> ExtensionOf(const model::Order& order);

// As the job declares it.
remedy::Schedule ScheduleOf(const model::ModelSpec& spec);

}  // namespace gyrostat::policy
