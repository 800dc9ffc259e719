#include "policy/measure_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/words.h"
#include "remedy/deepnorm.h"
#include "remedy/registers.h"

namespace gyrostat::policy {
namespace {

using model::Boundary;
using model::InterventionKind;
using model::NormPlacement;

constexpr double kCompanionScale = 0.3;
constexpr uint32_t kCompanionBoundaries = 50;
constexpr double kWholeMax = remedy::kVersionsSaid;  // Whole numbers below it are exact as float32.

std::nullopt_t Refuse(std::string* why, std::string sentence) {
  *why = std::move(sentence);
  return std::nullopt;
}

// Rounded towards 0: what was within a bound above stays there.
float Down(double value) {
  const auto near = static_cast<float>(value);
  return static_cast<double>(near) > value ? std::nextafterf(near, 0.0f) : near;
}

bool IsWhole(Boundary boundary) { return static_cast<double>(boundary) < kWholeMax; }

std::string Beyond(Boundary boundary) {
  return "boundary " + std::to_string(boundary) + " cannot be named in an order, wanted one below 2^24";
}

void Set(const PlanView& view, uint32_t id, double value, Plan* plan) {
  plan->sets.push_back(view.measures.registers.Set(id, static_cast<float>(value)));
}

std::optional<Plan> ScalePlan(const PlanView& view, double scale, uint64_t boundaries, std::string* why) {
  const Boundary until = boundaries == 0 ? 0 : view.at + boundaries;
  if (!IsWhole(until)) return Refuse(why, Beyond(until));
  Plan plan{.kind = InterventionKind::kLrScale, .sets = {}, .ramp = 0, .what = {}};
  Set(view, remedy::kRegisterLrScale, scale, &plan);
  Set(view, remedy::kRegisterLrScaleUntil, static_cast<double>(until), &plan);
  plan.what = "the learning rate times " + Number(scale) +
              (boundaries == 0 ? " for good" : " for " + Count(boundaries, "step"));
  return plan;
}

std::optional<Plan> PlanClip(const Proposal& wish, const PlanView& view, std::string* why) {
  double norm = wish.max_norm.value_or(0);
  if (!wish.max_norm) {
    const std::vector<double> logs = view.measures.gauges.Newest(Gauge::kGradNorm, GaugeHistory::kKept);
    if (logs.size() < 20)
      return Refuse(why, Count(logs.size(), "gradient norm") +
                             " reported so far, wanted 20 to take their median from, or a norm that is given");
    norm = 2 * std::exp(MedianOf(logs));
  }
  if (!(norm > 0 && std::isfinite(norm))) return Refuse(why, "the norm is " + Number(norm) + ", wanted one above 0");
  Plan plan{.kind = InterventionKind::kGradClip, .sets = {}, .ramp = 0, .what = {}};
  Set(view, remedy::kRegisterGradClip, norm, &plan);
  plan.what = "gradients are clipped to a norm of " + Number(norm);
  return plan;
}

std::optional<Plan> PlanSkip(const Proposal& wish, const PlanView& view, std::string* why) {
  const model::Step step = wish.at_step.value_or(0);
  const int64_t ahead = step - view.measures.step;
  const auto boundary = static_cast<int64_t>(view.measures.boundary) + ahead;
  if (boundary < static_cast<int64_t>(view.at))
    return Refuse(why, "step " + std::to_string(step) + " is past or too near: the job is at step " +
                           std::to_string(view.measures.step) + ", wanted a step from " +
                           std::to_string(view.measures.step + static_cast<int64_t>(view.at - view.measures.boundary)) +
                           " on");
  if (!IsWhole(static_cast<Boundary>(boundary))) return Refuse(why, Beyond(static_cast<Boundary>(boundary)));
  Plan plan{.kind = InterventionKind::kSkipStep, .sets = {}, .ramp = 0, .what = {}};
  Set(view, remedy::kRegisterSkipBoundary, static_cast<double>(boundary), &plan);
  plan.what = "the optimizer step of step " + std::to_string(step) + " is left out";
  return plan;
}

Plan PlanRequest(InterventionKind kind, const PlanView& view) {
  Plan plan{.kind = kind, .sets = {}, .ramp = 0, .what = {}};
  const uint32_t id = kind == InterventionKind::kCheckpoint ? remedy::kRegisterCheckpoint
                      : kind == InterventionKind::kRollback ? remedy::kRegisterRollback
                                                            : remedy::kRegisterHalt;
  Set(view, id, 1, &plan);
  plan.what = kind == InterventionKind::kCheckpoint ? "the loop saves a checkpoint now"
              : kind == InterventionKind::kRollback ? "the loop goes back to its last good checkpoint"
                                                    : "the loop ends";
  return plan;
}

Plan RayPlan(const remedy::WarmupExtension& extension, const PlanView& view) {
  Plan plan{.kind = InterventionKind::kWarmupExtension, .sets = {}, .ramp = 0, .what = {}};
  const remedy::Ray& ray = extension.ray;
  Set(view, remedy::kRegisterRayRate, static_cast<double>(Down(ray.rate)), &plan);
  Set(view, remedy::kRegisterRaySlope, static_cast<double>(Down(ray.slope)), &plan);
  Set(view, remedy::kRegisterRayBoundary, static_cast<double>(ray.boundary), &plan);
  Set(view, remedy::kRegisterRayUntil, static_cast<double>(ray.until), &plan);
  Set(view, remedy::kRegisterFallLength, extension.fall ? extension.fall->length : 0, &plan);
  Set(view, remedy::kRegisterFallFloor, extension.fall ? static_cast<double>(Down(extension.fall->floor)) : 1, &plan);
  return plan;
}

// W' where nobody names one: the configured stretch, or one step before the run's last. Nothing where the warm-up is
// over: PlanWarmup knows the end of a notch.
std::optional<uint64_t> DefaultEnd(const remedy::Schedule& schedule, uint64_t step, const PolicyOptions& options) {
  if (step >= schedule.warmup) return std::nullopt;
  const auto end = static_cast<uint64_t>(options.warmup_extension.stretch * static_cast<double>(schedule.warmup));
  return schedule.total == 0 ? end : std::min(end, schedule.total - 1);
}

std::optional<Plan> PlanStretch(const Proposal& wish, const PlanView& view, std::string* why) {
  const Measures& m = view.measures;
  const model::ModelSpec& spec = view.job.model;
  if (!spec.warmup_steps || !spec.schedule_peak)
    return Refuse(why, "the job does not declare its schedule: warm-up and peak rate are needed to extend a warm-up");
  const remedy::Schedule schedule = ScheduleOf(spec);
  if (*why = remedy::CheckSchedule(schedule); !why->empty()) return std::nullopt;
  const int64_t step = m.step + static_cast<int64_t>(view.at - m.boundary);
  if (step < 0) return Refuse(why, "the job is at step " + std::to_string(step) + ", wanted 0 or later");
  remedy::WarmupRequest request;
  request.schedule = schedule;
  request.step = static_cast<uint64_t>(step);
  request.boundary = view.at;
  const double base = remedy::BaseRate(schedule, request.step);
  request.effective_rate = m.rate.value_or(m.envelope.Rate(base, view.at));
  request.end = DefaultEnd(schedule, request.step, view.options);
  if (wish.warmup_end) request.end = static_cast<uint64_t>(std::max<model::Step>(*wish.warmup_end, 0));
  const auto extension = remedy::PlanWarmup(request, m.envelope, why);
  if (!extension) return std::nullopt;
  if (!IsWhole(extension->ray.until)) return Refuse(why, Beyond(extension->ray.until));
  Plan plan = RayPlan(*extension, view);
  const int64_t end = step + static_cast<int64_t>(extension->ray.until - view.at);
  plan.what = extension->fall ? "the learning rate falls to " + Number(extension->fall->floor) +
                                    " of itself and warms up again until step " + std::to_string(end)
                              : "the warm-up ends at step " + std::to_string(end) + " instead of " +
                                    std::to_string(schedule.warmup) + ", the rate is " + Number(extension->ray.rate) +
                                    " at once";
  return plan;
}

// Layers' alphas as they are, if an order may change them.
struct AlphaNow {
  double lowest = 0, highest = 0;
};

std::optional<AlphaNow> AlphasOf(const PlanView& view, std::string* why) {
  const model::ModelSpec& spec = view.job.model;
  const bool post = spec.norm_placement == NormPlacement::kPost;
  if (!post && spec.norm_placement != NormPlacement::kDeepnorm)
    return Refuse(why, std::string("the norms are placed ") +
                           (model::Token(spec.norm_placement)[0] == 0 ? "unknown" : model::Token(spec.norm_placement)) +
                           ", wanted post or deepnorm: no other residual has an alpha");
  if (!post && !spec.deepnorm_alpha)
    return Refuse(why, "the job declares no deepnorm_alpha, wanted the one it trains with");
  if (spec.layers == 0) return Refuse(why, "the job does not say how many layers it has");
  const auto declared = static_cast<float>(spec.deepnorm_alpha.value_or(1));
  AlphaNow now;
  for (uint32_t layer = 0; layer < spec.layers; ++layer) {
    const uint32_t id = remedy::kRegisterAlphas + layer;
    if (view.measures.registers.Ramping(id, view.at))
      return Refuse(why, "alpha of layer " + std::to_string(layer) + " is still on its last ramp");
    const double alpha = view.measures.registers.At(id, view.at, declared);
    now.lowest = layer == 0 ? alpha : std::min(now.lowest, alpha);
    now.highest = std::max(now.highest, alpha);
  }
  if (!(now.lowest > 0)) return Refuse(why, "alpha stands at " + Number(now.lowest) + ", wanted above 0");
  return now;
}

std::optional<double> TargetAlpha(const Proposal& wish, const PlanView& view, const AlphaNow& now, std::string* why) {
  const uint32_t layers = view.job.model.layers;
  if (wish.alpha) return wish.alpha;
  const auto constants = remedy::DeepNormFor(remedy::DeepNormArch::kDecoder, layers, 0, why);
  if (!constants || !constants->decoder) return std::nullopt;
  const double target = constants->decoder->alpha;
  if (now.lowest >= target * 0.999)
    return Refuse(why, "alpha stands at " + Number(now.lowest) + ", and DeepNorm's for " + Count(layers, "layer") +
                           " is " + Number(target) + ": there is nothing to raise");
  return target;
}

std::optional<Plan> PlanAlpha(const Proposal& wish, const PlanView& view, std::string* why) {
  const uint32_t layers = view.job.model.layers;
  const auto now = AlphasOf(view, why);
  if (!now) return std::nullopt;
  const uint64_t sets = uint64_t{layers} * (wish.beta ? 2 : 1);
  if (sets > remedy::kRegisterSetsMax)
    return Refuse(why, Count(sets, "register") + " in one order, wanted at most " +
                           std::to_string(remedy::kRegisterSetsMax));
  const auto target = TargetAlpha(wish, view, *now, why);
  if (!target) return std::nullopt;
  const double change = std::max(*target / now->lowest, now->highest / *target);
  if (change > remedy::kAlphaStepMax * (1 + 1e-6))
    return Refuse(why, "alpha goes from " + Number(now->lowest) + " to " + Number(*target) + ", a factor of " +
                           Number(change) + ", wanted at most 5 in one order");
  Plan plan{.kind = InterventionKind::kDeepnormAlpha, .sets = {}, .ramp = 0, .what = {}};
  plan.ramp = wish.ramp.value_or(view.options.deepnorm_alpha.ramp);
  for (uint32_t layer = 0; layer < layers; ++layer) Set(view, remedy::kRegisterAlphas + layer, *target, &plan);
  plan.what = "alpha goes from " + Number(now->lowest) + " to " + Number(*target) + " over " +
              std::to_string(plan.ramp) + " boundaries";
  if (!wish.beta) return plan;
  if (!view.job.model.deepnorm_beta)
    return Refuse(why, "the job declares no deepnorm_beta: its loop cannot scale the branches' weights");
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const uint32_t id = remedy::kRegisterBetas + layer;
    const double beta = view.measures.registers.At(id, view.at, 1);
    if (*wish.beta > beta || *wish.beta < beta * remedy::kBetaFactorMin)
      return Refuse(why, "beta is " + Number(*wish.beta) + " and stands at " + Number(beta) +
                             ", wanted no more than that and no less than a tenth of it");
    Set(view, id, *wish.beta, &plan);
  }
  plan.what += ", the branches' weights are scaled to " + Number(*wish.beta);
  return plan;
}

}  // namespace

std::optional<Plan> PlanMeasure(const Proposal& wish, const PlanView& view, std::string* why) {
  switch (wish.kind) {
    case InterventionKind::kWarmupExtension: return PlanStretch(wish, view, why);
    case InterventionKind::kDeepnormAlpha: return PlanAlpha(wish, view, why);
    case InterventionKind::kLrScale:
      return ScalePlan(view, wish.scale.value_or(view.options.lr_scale.scale),
                       wish.for_boundaries.value_or(view.options.lr_scale.for_boundaries), why);
    case InterventionKind::kGradClip: return PlanClip(wish, view, why);
    case InterventionKind::kSkipStep: return PlanSkip(wish, view, why);
    case InterventionKind::kCheckpoint:
    case InterventionKind::kRollback:
    case InterventionKind::kHalt: return PlanRequest(wish.kind, view);
    case InterventionKind::kQkClip:
    case InterventionKind::kCollect: break;
  }
  return Refuse(why, std::string(model::Token(wish.kind)) + " is no measure that is planned");
}

std::optional<Plan> PlanCompanion(const PlanView& view, std::string* why) {
  const double scale = view.measures.envelope.ScaleAt(view.at);
  if (scale <= kCompanionScale) return Plan{.kind = InterventionKind::kLrScale, .sets = {}, .ramp = 0, .what = {}};
  if (std::string obstacle = ObstacleTo(InterventionKind::kLrScale, view.job); !obstacle.empty())
    return Refuse(why, "alpha comes with lr_scale 0.3 for 50 boundaries, and " + obstacle);
  if (scale < 1)
    return Refuse(why, "lr_scale " + Number(scale) +
                           " is in force, and alpha comes with 0.3 for 50 boundaries: it waits until that is over");
  return ScalePlan(view, kCompanionScale, kCompanionBoundaries, why);
}

Plan PlanRay(const remedy::Ray& ray, const PlanView& view) {
  Plan plan = RayPlan({.ray = ray, .fall = {}}, view);
  plan.what = "the ray that the resume lost is set again";
  return plan;
}

std::optional<remedy::WarmupExtension> ExtensionOf(const model::Order& order) {
  double values[6] = {};
  uint32_t found = 0;
  for (const model::RegisterSet& each : order.sets)
    if (each.id >= remedy::kRegisterRayRate && each.id <= remedy::kRegisterFallFloor) {
      values[each.id - remedy::kRegisterRayRate] = static_cast<double>(each.value);
      ++found;
    }
  const auto whole = [](double v) { return v >= 0 && v < kWholeMax; };
  if (found != 6 || !whole(values[2]) || !whole(values[3]) || !whole(values[4])) return std::nullopt;
  remedy::WarmupExtension extension;
  extension.ray = {.boundary = static_cast<Boundary>(values[2]),
                   .rate = values[0],
                   .slope = values[1],
                   .until = static_cast<Boundary>(values[3])};
  const auto length = static_cast<uint32_t>(values[4]);
  if (length > 0 && length <= extension.ray.boundary)
    extension.fall = remedy::Fall{extension.ray.boundary - length, length, values[5]};
  return extension;
}

remedy::Schedule ScheduleOf(const model::ModelSpec& spec) {
  return {.kind = spec.schedule_kind,
          .peak = spec.schedule_peak.value_or(0),
          .warmup = spec.warmup_steps.value_or(0),
          .total = spec.total_steps.value_or(0)};
}

}  // namespace gyrostat::policy
