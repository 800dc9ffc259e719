#include "client/src/register_terms.h"

#include <cfloat>
#include <cmath>
#include <cstdio>

#include "remedy/deepnorm.h"

namespace gyrostat::client {
namespace {

using model::InterventionKind;
using remedy::RegisterBounds;

constexpr float kWholeMax = static_cast<float>(remedy::kVersionsSaid - 1);
constexpr float kLrScaleMin = 0.01f;
constexpr float kCollectEveryMax = 10000;
constexpr float kAlphaMax = 1e6f, kAlphaMin = 1e-6f;

// The registers [first, first + count) that an order of a kind sets, all of them.
struct Group {
  InterventionKind kind;
  uint32_t first, count;
};
constexpr Group kGroups[] = {
    {InterventionKind::kLrScale, remedy::kRegisterLrScale, 2},
    {InterventionKind::kGradClip, remedy::kRegisterGradClip, 1},
    {InterventionKind::kSkipStep, remedy::kRegisterSkipBoundary, 1},
    {InterventionKind::kCheckpoint, remedy::kRegisterCheckpoint, 1},
    {InterventionKind::kRollback, remedy::kRegisterRollback, 1},
    {InterventionKind::kHalt, remedy::kRegisterHalt, 1},
    {InterventionKind::kCollect, remedy::kRegisterCollectEvery, 1},
    {InterventionKind::kWarmupExtension, remedy::kRegisterRayRate, 6},
};

std::string Text(float value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", static_cast<double>(value));
  return text;
}

bool IsAlpha(uint32_t id) { return id >= remedy::kRegisterAlphas && id < remedy::kRegisterBetas; }
bool IsBeta(uint32_t id) { return id >= remedy::kRegisterBetas && id < remedy::kRegistersMax; }

bool IsWhole(uint32_t id) {
  return id != remedy::kRegisterLrScale && id != remedy::kRegisterGradClip && id != remedy::kRegisterRayRate &&
         id != remedy::kRegisterRaySlope && id < remedy::kRegisterFallFloor;
}

// What alpha is before anybody changes it; nothing where it may not be changed.
std::optional<double> DeclaredAlpha(const model::ModelSpec& model) {
  if (model.norm_placement == model::NormPlacement::kPost) return model.deepnorm_alpha.value_or(1);
  if (model.norm_placement == model::NormPlacement::kDeepnorm) return model.deepnorm_alpha;
  return std::nullopt;
}

bool HasWarmup(const model::ModelSpec& model) {
  return model.schedule_peak && *model.schedule_peak > 0 && model.warmup_steps && *model.warmup_steps > 0;
}

// Why the job has no such register.
std::string Absent(const model::ModelSpec& model, uint32_t id) {
  const std::string name = RegisterName(id);
  if (IsAlpha(id) || IsBeta(id)) {
    if (DeclaredAlpha(model) && IsBeta(id) && !model.deepnorm_beta)
      return name + " cannot be changed: the job declares no deepnorm_beta";
    if (DeclaredAlpha(model))
      return name + " does not exist: the model has " + std::to_string(model.layers) + " layers";
    if (model.norm_placement == model::NormPlacement::kDeepnorm)
      return name + " cannot be changed: the job declares no deepnorm_alpha, wanted the one it trains with";
    const char* placement = model::Token(model.norm_placement);
    return name + " cannot be changed: the norm placement is " + (*placement == '\0' ? "not declared" : placement) +
           ", wanted post or deepnorm";
  }
  if (id >= remedy::kRegisterRayRate && id <= remedy::kRegisterFallFloor)
    return "the job declares no warm-up and peak, wanted both to judge an extension by";
  return "register " + std::to_string(id) + " does not exist";
}

// Empty, or why these are not the registers of the kind.
std::string CheckGroup(const model::ModelSpec& model, const remedy::RegisterFile& registers, InterventionKind kind,
                       std::span<const model::RegisterSet> sets) {
  const std::string token = model::Token(kind);
  if (sets.empty() || sets.size() > remedy::kRegisterSetsMax)
    return token + " sets " + std::to_string(sets.size()) + " registers, wanted 1 to " +
           std::to_string(remedy::kRegisterSetsMax);
  for (size_t i = 1; i < sets.size(); ++i)
    if (sets[i].id <= sets[i - 1].id) return RegisterName(sets[i].id) + " is out of order or named twice";
  if (kind == InterventionKind::kDeepnormAlpha) {
    for (const model::RegisterSet& set : sets)
      if (!IsAlpha(set.id) && !IsBeta(set.id))
        return token + " sets " + RegisterName(set.id) + ", wanted alphas and betas only";
  } else {
    const auto group = std::find_if(std::begin(kGroups), std::end(kGroups),
                                    [kind](const Group& each) { return each.kind == kind; });
    if (group == std::end(kGroups)) return token + " sets no registers";
    if (sets.size() != group->count || sets.front().id != group->first ||
        sets.back().id != group->first + group->count - 1)
      return token + " sets " + std::to_string(sets.size()) + " registers from " + RegisterName(sets.front().id) +
             ", wanted all " + std::to_string(group->count) + " from " + RegisterName(group->first);
  }
  for (const model::RegisterSet& set : sets)
    if (set.id >= registers.size() || registers.bounds(set.id).max <= 0) return Absent(model, set.id);
  return {};
}

// Empty, or why a register may not be set to that.
std::string CheckValue(const remedy::RegisterFile& registers, const model::RegisterSet& set, uint32_t ramp,
                       model::Boundary boundary) {
  const RegisterBounds& bounds = registers.bounds(set.id);
  const std::string name = RegisterName(set.id);
  if (!(std::isfinite(set.value) && set.value >= bounds.min && set.value <= bounds.max))
    return name + " is " + Text(set.value) + ", wanted " + Text(bounds.min) + " to " + Text(bounds.max);
  if (IsWhole(set.id) && std::floor(set.value) != set.value)
    return name + " is " + Text(set.value) + ", wanted a whole number";
  const float now = registers.at(set.id).At(boundary);
  if (IsBeta(set.id) && set.value > now)
    return name + " goes from " + Text(now) + " to " + Text(set.value) + ", wanted at most " + Text(now);
  ramp = remedy::RampOf(set.id, ramp);
  if (ramp > bounds.ramp_max)
    return name + " moves over " + std::to_string(ramp) + " boundaries, wanted at most " +
           std::to_string(bounds.ramp_max);
  if (registers.Refusal(set.id, set.value, ramp, boundary) == nullptr) return {};
  return name + " goes from " + Text(now) + " to " + Text(set.value) + ", wanted at most a factor of " +
         Text(static_cast<float>(std::exp(bounds.ln_change)));
}

std::string CheckRay(const model::ModelSpec& model, const remedy::LrEnvelope& envelope,
                     std::span<const model::RegisterSet> sets) {
  const auto read = [sets](uint32_t id) { return sets[id - remedy::kRegisterRayRate].value; };
  if (read(remedy::kRegisterFallLength) > read(remedy::kRegisterRayBoundary))
    return "the notch falls for " + Text(read(remedy::kRegisterFallLength)) + " boundaries before boundary " +
           Text(read(remedy::kRegisterRayBoundary)) + ", wanted no more than there were";
  if (envelope.rays().size() >= remedy::LrEnvelope::kRaysMax)
    return std::to_string(envelope.rays().size()) + " extensions are in force, wanted fewer than " +
           std::to_string(remedy::LrEnvelope::kRaysMax);
  // Rate and slope came as float32, rounded from what was planned.
  const double peak = *model.schedule_peak * (1 + static_cast<double>(FLT_EPSILON));
  return remedy::CheckExtension(ExtensionOf(read), peak, *model.warmup_steps);
}

// Empty, or why there is nothing left to do at `boundary`.
std::string Past(InterventionKind kind, std::span<const model::RegisterSet> sets, model::Boundary boundary) {
  const model::RegisterSet& last = sets.back();
  const bool skip = kind == InterventionKind::kSkipStep;
  const bool until = kind == InterventionKind::kLrScale && last.value != 0;
  if ((!skip && !until) || static_cast<model::Boundary>(last.value) > boundary) return {};
  return RegisterName(last.id) + " is boundary " + Text(last.value) + ", and boundary " + std::to_string(boundary) +
         " has passed";
}

}  // namespace

std::vector<RegisterBounds> RegisterBoundsFor(const model::ModelSpec& model) {
  const std::optional<double> alpha = DeclaredAlpha(model);
  const bool has_alpha = alpha && model.layers > 0;
  std::vector<RegisterBounds> bounds(has_alpha ? remedy::kRegisterBetas + model.layers
                                               : remedy::kRegisterFallFloor + 1);
  const RegisterBounds whole{.max = kWholeMax, .initial = 0}, request{.min = 1, .max = 1, .initial = 0};
  bounds[remedy::kRegisterLrScale] = {.min = kLrScaleMin, .max = 1};
  bounds[remedy::kRegisterLrScaleUntil] = whole;
  bounds[remedy::kRegisterGradClip] = {.min = FLT_MIN, .max = FLT_MAX, .initial = 0};
  bounds[remedy::kRegisterSkipBoundary] = {.min = 1, .max = kWholeMax, .initial = 0};
  for (const uint32_t id : {remedy::kRegisterCheckpoint, remedy::kRegisterRollback, remedy::kRegisterHalt})
    bounds[id] = request;
  bounds[remedy::kRegisterCollectEvery] = {.min = 1, .max = kCollectEveryMax, .initial = 0};
  if (HasWarmup(model)) {
    bounds[remedy::kRegisterRayRate] = bounds[remedy::kRegisterRaySlope] = {.max = FLT_MAX, .initial = 0};
    for (const uint32_t id : {remedy::kRegisterRayBoundary, remedy::kRegisterRayUntil, remedy::kRegisterFallLength})
      bounds[id] = whole;
    bounds[remedy::kRegisterFallFloor] = {.min = FLT_MIN, .max = 1};
  }
  for (uint32_t layer = 0; has_alpha && layer < model.layers; ++layer) {
    bounds[remedy::kRegisterAlphas + layer] = {.min = kAlphaMin,
                                               .max = kAlphaMax,
                                               .ln_change = std::log(remedy::kAlphaStepMax),
                                               .ramp_max = remedy::kAlphaRampMax,
                                               .initial = static_cast<float>(*alpha)};
    if (model.deepnorm_beta)  // Else nobody said that the loop can scale the branches.
      bounds[remedy::kRegisterBetas + layer] = {
          .min = FLT_MIN, .max = 1, .ln_change = -std::log(remedy::kBetaFactorMin), .initial = 1};
  }
  return bounds;
}

std::string RegisterName(uint32_t id) {
  if (IsBeta(id)) return "beta of layer " + std::to_string(id - remedy::kRegisterBetas);
  if (IsAlpha(id)) return "alpha of layer " + std::to_string(id - remedy::kRegisterAlphas);
  switch (id) {
    case remedy::kRegisterLrScale: return "lr_scale";
    case remedy::kRegisterLrScaleUntil: return "the last boundary of lr_scale";
    case remedy::kRegisterGradClip: return "grad_clip";
    case remedy::kRegisterSkipBoundary: return "the step to skip";
    case remedy::kRegisterCheckpoint: return "checkpoint";
    case remedy::kRegisterRollback: return "rollback";
    case remedy::kRegisterHalt: return "halt";
    case remedy::kRegisterCollectEvery: return "collect";
    case remedy::kRegisterRayRate: return "the ray's rate";
    case remedy::kRegisterRaySlope: return "the ray's slope";
    case remedy::kRegisterRayBoundary: return "the ray's first boundary";
    case remedy::kRegisterRayUntil: return "the ray's last boundary";
    case remedy::kRegisterFallLength: return "the length of the fall";
    case remedy::kRegisterFallFloor: return "the floor of the fall";
    default: return "register " + std::to_string(id);
  }
}

bool IsBoundary(uint32_t id) {
  return id == remedy::kRegisterLrScaleUntil || id == remedy::kRegisterSkipBoundary ||
         id == remedy::kRegisterRayBoundary || id == remedy::kRegisterRayUntil;
}

SetsVerdict JudgeSets(const model::ModelSpec& model, const remedy::RegisterFile& registers,
                      const remedy::LrEnvelope& envelope, InterventionKind kind,
                      std::span<const model::RegisterSet> sets, uint32_t ramp, model::Boundary boundary) {
  using Do = SetsVerdict::Do;
  if (std::string why = CheckGroup(model, registers, kind, sets); !why.empty()) return {Do::kRefuse, std::move(why)};
  for (const model::RegisterSet& set : sets)
    if (!registers.Expects(set.id, set.expected_version))
      return {Do::kVoid, RegisterName(set.id) + " was set " + std::to_string(registers.at(set.id).version) +
                             " times, the order expects " + std::to_string(set.expected_version)};
  if (ramp > 0 && kind != InterventionKind::kDeepnormAlpha)
    return {Do::kRefuse, std::string(model::Token(kind)) + " moves over " + std::to_string(ramp) +
                             " boundaries, wanted 0: at once"};
  for (const model::RegisterSet& set : sets)
    if (std::string why = CheckValue(registers, set, ramp, boundary); !why.empty())
      return {Do::kRefuse, std::move(why)};
  if (kind == InterventionKind::kWarmupExtension)
    if (std::string why = CheckRay(model, envelope, sets); !why.empty()) return {Do::kRefuse, std::move(why)};
  if (std::string why = Past(kind, sets, boundary); !why.empty()) return {Do::kVoid, std::move(why)};
  return {};
}

const char* AppliedWord(InterventionKind kind) {
  switch (kind) {
    case InterventionKind::kDeepnormAlpha:
      return "alpha and beta are part of the checkpoint from now on";
    case InterventionKind::kWarmupExtension:
    case InterventionKind::kLrScale:
      return "weight decay that is coupled to the rate shrinks with it";
    default:
      return "";
  }
}

}  // namespace gyrostat::client
