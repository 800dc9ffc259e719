// The learning rate that a job's own schedule gives, as the job declares it: before any envelope (remedy/warmup.h).
//
// Pure; thread-safe; no allocation but in sentences. Only the daemon and people compute with it (cosines differ in the
// last bit between machines): what ranks apply are rays, which need no schedule.
#pragma once

#include <cstdint>
#include <string>

#include "model/model_spec.h"

namespace gyrostat::remedy {

// Linear warm-up to `peak` at step `warmup`, then: kConst stays; kLinear and kCosine fall to 0 at `total`; kWsd stays
// and falls linearly to 0 over the last tenth (OLMo-core's default); kNoam falls as 1 / sqrt(step), whatever `total`.
// kUnknown is a user's own schedule, of which only the warm-up is known.
struct Schedule {
  model::ScheduleKind kind = model::ScheduleKind::kUnknown;
  double peak = 0;      // Finite, above 0.
  uint64_t warmup = 0;  // Steps; 0: none.
  uint64_t total = 0;   // Steps; 0: not known, which kLinear, kCosine and kWsd cannot be.
};

// Empty, or what is wrong with it.
std::string CheckSchedule(const Schedule& schedule);

// The rate at `step`, for a sound schedule: 0 at step 0 of a warm-up, the peak at step `warmup`, 0 from `total` on
// where it decays. kUnknown counts as kConst: an upper bound.
double BaseRate(const Schedule& schedule, uint64_t step);

}  // namespace gyrostat::remedy
