#include "policy/proposal.h"

#include "policy/words.h"
#include "remedy/deepnorm.h"
#include "remedy/registers.h"

namespace gyrostat::policy {
namespace {

using model::InterventionKind;

constexpr double kScaleMin = 0.01;
constexpr double kNormMax = 1e9;

std::string Range(const char* what, std::optional<double> seen, double low, double high) {
  if (!seen || (*seen >= low && *seen <= high)) return {};
  return std::string(what) + " is " + Number(*seen) + ", wanted " + Number(low) + " to " + Number(high);
}

template <class T>
std::optional<double> AsNumber(const std::optional<T>& value) {
  return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
}

// Names a value that was given to a kind that takes no such thing.
std::string Misplaced(const Proposal& p) {
  struct Field {
    bool given;
    const char* name;
    InterventionKind kind;
  };
  const Field fields[] = {{p.warmup_end.has_value(), "a step of the warm-up's end", InterventionKind::kWarmupExtension},
                          {p.alpha.has_value(), "alpha", InterventionKind::kDeepnormAlpha},
                          {p.beta.has_value(), "beta", InterventionKind::kDeepnormAlpha},
                          {p.ramp.has_value(), "a ramp", InterventionKind::kDeepnormAlpha},
                          {p.scale.has_value(), "a scale", InterventionKind::kLrScale},
                          {p.for_boundaries.has_value(), "a duration", InterventionKind::kLrScale},
                          {p.max_norm.has_value(), "a norm", InterventionKind::kGradClip},
                          {p.at_step.has_value(), "a step to skip", InterventionKind::kSkipStep}};
  for (const Field& each : fields)
    if (each.given && each.kind != p.kind)
      return std::string(model::Token(p.kind)) + " takes no such thing as " + each.name + "; it belongs to " +
             model::Token(each.kind);
  return {};
}

}  // namespace

std::string CheckProposal(const Proposal& p) {
  if (p.kind == InterventionKind::kQkClip || p.kind == InterventionKind::kCollect)
    return std::string(model::Token(p.kind)) + " is ordered by the policy itself; wanted one of warmup_extension, "
           "deepnorm_alpha, lr_scale, grad_clip, skip_step, checkpoint, rollback, halt";
  if (std::string why = Misplaced(p); !why.empty()) return why;
  if (p.kind == InterventionKind::kSkipStep && !p.at_step)
    return "skip_step needs the step to leave out (--at-step)";
  const double boundary_max = remedy::kVersionsSaid - 1;
  const std::string wrong[] = {
      Range("the new end of the warm-up", AsNumber(p.warmup_end), 1, 9e15),
      Range("alpha", p.alpha, 0.01, 1000),
      Range("beta", p.beta, 0.001, 1),
      Range("ramp", AsNumber(p.ramp), 1, remedy::kAlphaRampMax),
      Range("scale", p.scale, kScaleMin, 1),
      Range("the duration", AsNumber(p.for_boundaries), 0, boundary_max),
      Range("the norm", p.max_norm, 1e-9, kNormMax),
      Range("the step to skip", AsNumber(p.at_step), 0, 9e15)};
  for (const std::string& each : wrong)
    if (!each.empty()) return each;
  return {};
}

}  // namespace gyrostat::policy
