// Registers: everything that an order may set and that is not a clip (protocol.md §5). Learning-rate scale, envelopes,
// DeepNorm alpha and beta, requests to the loop: each has a value, a version that counts its sets, and possibly a ramp.
// A set names the version it expects, so that a second delivery finds another one and is void. The client keeps the
// truth; policy writes orders from what hellos and acks told it.
//
// Pure; not thread-safe. No allocation after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/ids.h"
#include "model/intervention.h"

namespace gyrostat::remedy {

// Which register is which. Do not change the values: they reach the wire and the trainer's checkpoint, and
// gyrostat/gyrostat.h repeats them. Values that are boundaries or counts are whole numbers below 2^24, which float32
// holds exactly. An order of a kind sets all registers of its group, so that none is a mix of two orders.
enum RegisterId : uint32_t {
  // lr_scale. Until: the last boundary it holds at; 0: for good.
  kRegisterLrScale = 0,
  kRegisterLrScaleUntil = 1,
  kRegisterGradClip = 2,      // grad_clip: the largest norm that the loop's own clipping may leave.
  kRegisterSkipBoundary = 3,  // skip_step: the boundary whose optimizer step is left out. Void once it is past.
  // Requests to the loop; the value is 1, the version counts them.
  kRegisterCheckpoint = 4,
  kRegisterRollback = 5,
  kRegisterHalt = 6,
  kRegisterCollectEvery = 7,  // collect: maxima of attention logits at every so many steps.
  // warmup_extension (remedy/warmup.h): the newest one; LrEnvelope keeps those in force. The fall of a notch ends
  // where the ray begins; length 0 and floor 1: none.
  kRegisterRayRate = 16,
  kRegisterRaySlope = 17,
  kRegisterRayBoundary = 18,
  kRegisterRayUntil = 19,
  kRegisterFallLength = 20,
  kRegisterFallFloor = 21,
  // deepnorm_alpha: one register a layer, for all its sub-layers.
  kRegisterAlphas = 64,
  kRegisterBetas = 64 + 1024,
  kRegistersMax = 64 + 2 * 1024,
};

// What `ramp` boundaries of an order mean for one of its registers: betas scale weights, all at one boundary.
inline uint32_t RampOf(uint32_t id, uint32_t ramp) { return id >= kRegisterBetas ? 0 : ramp; }

// Versions travel modulo this.
inline constexpr uint32_t kVersionsSaid = 1u << 24;
// An order sets at most so many: what fits into one R (client/src/agreement/lanes.h).
inline constexpr uint32_t kRegisterSetsMax = 340;

// What a register may be set to. Part of the state digest: all ranks must have the same.
struct RegisterBounds {
  float min = 0, max = 0;  // Of the value. max 0: the register does not exist here.
  double ln_change = 0;    // |ln(new / old)| at most this. 0: any change.
  uint32_t ramp_max = 0;   // Boundaries.
  float initial = 1;       // Before it is ever set.
};

struct Register {
  float from = 1, to = 1;
  int64_t first = 0;  // The boundary at which the ramp begins; signed, since it may have begun before a restart.
  uint32_t ramp = 0;
  uint32_t version = 0;
  bool operator==(const Register&) const = default;

  // The value from boundary `at` on: geometric from `from` to `to`, the same bits on every machine.
  float At(model::Boundary at) const;
};

class RegisterFile {
 public:
  RegisterFile() = default;
  // As many registers as bounds.
  explicit RegisterFile(std::vector<RegisterBounds> bounds);

  size_t size() const { return registers_.size(); }
  const Register& at(uint32_t id) const { return registers_[id]; }
  const RegisterBounds& bounds(uint32_t id) const { return bounds_[id]; }

  // What is wrong with such a set at `boundary`; null: nothing. Never clamps.
  const char* Refusal(uint32_t id, float value, uint32_t ramp, model::Boundary boundary) const;
  // Whether `expected` (mod 2^24) is the version now. A set that expects another is void.
  bool Expects(uint32_t id, uint32_t expected) const;
  void Set(uint32_t id, float value, uint32_t ramp, model::Boundary boundary);

  // What the model shows a register to be (alpha read back). Where that is another value than the register's own it is
  // in the hash, since ranks with different alpha keep equal weights for a while. A rank without that layer, which can
  // read nothing, hashes as one that read what it should.
  void Observe(uint32_t id, float value);

  // As new: an epoch without a checkpoint.
  void Reset();
  // Registers that were ever set.
  std::vector<model::RegisterReading> Saved() const;
  // False, and nothing changed, when an id or a value does not fit. Ramps go on where they stood: boundary `then` of
  // the one who saved is boundary `now` here.
  bool Restore(std::span<const model::RegisterReading> saved, model::Boundary then, model::Boundary now);

  // Of all registers.
  uint64_t hash() const { return set_hash_; }
  // Of all registers, and of what was observed of them at boundary `at`.
  uint64_t HashAt(model::Boundary at) const;
  // Of bounds alone.
  uint64_t BoundsHash() const;

 private:
  uint64_t HashOf(uint32_t id) const;

  std::vector<RegisterBounds> bounds_;
  std::vector<float> observed_;                     // NaN: not read ...
  uint32_t observed_begin_ = 0, observed_end_ = 0;  // ... as all outside these.
  std::vector<Register> registers_;
  uint64_t set_hash_ = 0;  // A sum, so that one change costs one term.
};

}  // namespace gyrostat::remedy
