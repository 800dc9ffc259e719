#include "remedy/schedule.h"

#include <algorithm>
#include <cmath>

namespace gyrostat::remedy {
namespace {

using model::ScheduleKind;

constexpr uint64_t kStepsMax = uint64_t{1} << 53;  // Exact as a double.

bool Decays(ScheduleKind kind) {
  return kind == ScheduleKind::kLinear || kind == ScheduleKind::kCosine || kind == ScheduleKind::kWsd;
}

// What part of the way from `from` to `to` the step has gone, in [0, 1].
double Part(uint64_t step, uint64_t from, uint64_t to) {
  if (step >= to) return 1;
  return step <= from ? 0 : static_cast<double>(step - from) / static_cast<double>(to - from);
}

}  // namespace

std::string CheckSchedule(const Schedule& schedule) {
  if (!std::isfinite(schedule.peak) || schedule.peak <= 0)
    return "the peak rate is " + std::to_string(schedule.peak) + ", wanted a finite number above 0";
  if (schedule.warmup > kStepsMax || schedule.total > kStepsMax) return "the schedule is longer than 2^53 steps";
  if (Decays(schedule.kind) && schedule.total == 0)
    return std::string("the total number of steps is not known, which a ") + model::Token(schedule.kind) +
           " schedule needs";
  if (schedule.total != 0 && schedule.total <= schedule.warmup)
    return "the warm-up of " + std::to_string(schedule.warmup) + " steps does not end before the run's " +
           std::to_string(schedule.total);
  return {};
}

double BaseRate(const Schedule& schedule, uint64_t step) {
  const double peak = schedule.peak;
  if (step < schedule.warmup) return peak * static_cast<double>(step) / static_cast<double>(schedule.warmup);
  switch (schedule.kind) {
    case ScheduleKind::kLinear:
      return peak * (1 - Part(step, schedule.warmup, schedule.total));
    case ScheduleKind::kCosine:
      return peak * 0.5 * (1 + std::cos(Part(step, schedule.warmup, schedule.total) * 3.14159265358979323846));
    case ScheduleKind::kWsd: {
      const uint64_t decay = std::max<uint64_t>(schedule.total / 10, 1);
      return peak * (1 - Part(step, std::max(schedule.total - decay, schedule.warmup), schedule.total));
    }
    case ScheduleKind::kNoam: {
      const auto bend = static_cast<double>(std::max<uint64_t>(schedule.warmup, 1));
      return peak * std::sqrt(bend / static_cast<double>(std::max<uint64_t>(step, 1)));
    }
    case ScheduleKind::kConst:
    case ScheduleKind::kUnknown:
      break;
  }
  return peak;
}

}  // namespace gyrostat::remedy
