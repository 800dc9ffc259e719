// What orders of every kind but qk_clip may do to this job's registers (remedy/registers.h): bounds made from the
// model, and the judge of a whole order. The same on all ranks, so that equal state and equal input give equal
// verdicts.
//
//   lr_scale          scale in [0.01, 1], until: a boundary ahead, or 0
//   warmup_extension  a ray, with or without a fall, as remedy::CheckExtension judges it: all six registers together
//   deepnorm_alpha    alphas by at most a factor of 5, over at most 200 boundaries; betas at most 1, never up, at most
//                     a factor of 10. Only where the norm placement is post (alpha 1 unless declared) or deepnorm
//   grad_clip         above 0
//   skip_step         a boundary ahead
//   collect           1 to 10000 steps
//   checkpoint, rollback, halt: 1
// Outside a bound an order is refused, never clamped (design.md §6). Sources: protocol.md §5 to §7.
//
// Pure; thread-safe. Allocates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/ids.h"
#include "model/intervention.h"
#include "model/model_spec.h"
#include "remedy/registers.h"
#include "remedy/warmup.h"

namespace gyrostat::client {

// As many as the model needs; those that it does not have are left at max 0.
std::vector<remedy::RegisterBounds> RegisterBoundsFor(const model::ModelSpec& model);

// A register in words: "lr_scale", "alpha of layer 3".
std::string RegisterName(uint32_t id);

// The extension that six registers make. `read(id)` is the value of a register of the group.
template <class Read>
remedy::WarmupExtension ExtensionOf(const Read& read);

// Whether a register's value is a boundary, which another attempt counts differently.
bool IsBoundary(uint32_t id);

struct SetsVerdict {
  enum class Do : uint8_t { kApply, kVoid, kRefuse } what = Do::kApply;
  std::string reason;  // A sentence, unless kApply.
};

// An order of `kind` that would set `sets` at `boundary`, `ramp` boundaries long. Void where a register stands at
// another version than the order expects, or where what it names is past. The allow-list is not looked at.
SetsVerdict JudgeSets(const model::ModelSpec& model, const remedy::RegisterFile& registers,
                      const remedy::LrEnvelope& envelope, model::InterventionKind kind,
                      std::span<const model::RegisterSet> sets, uint32_t ramp, model::Boundary boundary);

// What an ack of *applied* says of such an order where the trainer says nothing; empty: nothing.
const char* AppliedWord(model::InterventionKind kind);

template <class Read>
remedy::WarmupExtension ExtensionOf(const Read& read) {
  const auto whole = [&read](uint32_t id) { return static_cast<uint64_t>(read(id)); };
  remedy::WarmupExtension extension;
  extension.ray = {.boundary = whole(remedy::kRegisterRayBoundary),
                   .rate = static_cast<double>(read(remedy::kRegisterRayRate)),
                   .slope = static_cast<double>(read(remedy::kRegisterRaySlope)),
                   .until = whole(remedy::kRegisterRayUntil)};
  const uint64_t length = whole(remedy::kRegisterFallLength);
  const auto floor = static_cast<double>(read(remedy::kRegisterFallFloor));
  if (length > 0 || floor < 1)
    extension.fall = remedy::Fall{.boundary = extension.ray.boundary - std::min(length, extension.ray.boundary),
                                  .length = static_cast<uint32_t>(length),
                                  .floor = floor};
  return extension;
}

}  // namespace gyrostat::client
