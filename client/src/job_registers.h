// The registers of one job with what hangs on them: the learning rate's envelope. The truth on the training thread, of
// one rank as of many.
//
// Not thread-safe. Allocates at construction, and where an order is judged or applied.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "client/src/register_terms.h"
#include "model/ids.h"
#include "model/intervention.h"
#include "model/model_spec.h"
#include "remedy/registers.h"
#include "remedy/warmup.h"

namespace gyrostat::client {

// Sets all registers of an order that was judged at `boundary`.
void SetAll(std::span<const model::RegisterSet> sets, uint32_t ramp, model::Boundary boundary,
            remedy::RegisterFile* registers);
// Registers out of a checkpoint that was saved after boundary `then`; here `now` have passed. Ramps and values that are
// boundaries move along. False, with a sentence, and nothing changed, where they do not fit the job.
bool RestoreAll(std::span<const model::RegisterReading> saved, model::Boundary then, model::Boundary now,
                remedy::RegisterFile* registers, std::string* why);

class JobRegisters {
 public:
  // `model` outlives the registers.
  explicit JobRegisters(const model::ModelSpec* model);

  const remedy::RegisterFile& file() const { return file_; }
  const remedy::LrEnvelope& envelope() const { return envelope_; }

  SetsVerdict Judge(model::InterventionKind kind, std::span<const model::RegisterSet> sets, uint32_t ramp,
                    model::Boundary boundary) const;
  // What was judged kApply at the same boundary.
  void Apply(model::InterventionKind kind, std::span<const model::RegisterSet> sets, uint32_t ramp,
             model::Boundary boundary);
  void Observe(uint32_t id, float value) { file_.Observe(id, value); }

  // The rate of the optimizer step of boundary `at`. The first `base` that is named of a boundary is what the envelope
  // is ended by. Does not allocate.
  double Rate(double base, model::Boundary at);
  // Boundary `at` has passed: what has ended is forgotten, by the base rate that its step was given.
  void Passed(model::Boundary at);

  void Reset();
  // As RestoreAll, with the envelope.
  bool Restore(std::span<const model::RegisterReading> saved, const remedy::LrEnvelope& envelope, model::Boundary then,
               model::Boundary now, std::string* why);

  // Of everything that ranks must have in common at boundary `at`.
  uint64_t HashAt(model::Boundary at) const;
  // Of what is no state: what orders are judged by.
  uint64_t BoundsHash() const;

 private:
  const model::ModelSpec* model_;
  remedy::RegisterFile file_;
  remedy::LrEnvelope envelope_;
  model::Boundary base_of_ = 0;  // The boundary of base_; 0: none.
  double base_ = 0;
};

}  // namespace gyrostat::client
