#include "ctl/extend_warmup.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ctl/json.h"
#include "ctl/render.h"
#include "remedy/warmup.h"

namespace gyrostat::ctl {
namespace {

// Steps that show the shape where nobody asked for any: around the drop, on the way, around the end.
std::vector<uint64_t> TellingSteps(uint64_t at, uint64_t to) {
  std::vector<uint64_t> steps = {at, at + 1};
  if (at > 0) steps.insert(steps.begin(), at - 1);
  for (uint64_t part = 1; part < 4; ++part) steps.push_back(at + (to - at) * part / 4);
  steps.insert(steps.end(), {to - 1, to, to + 1});
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

}  // namespace

int ExtendWarmup(const Request& request, const Console& console) {
  const WarmupQuestion& asked = request.warmup;
  const remedy::Schedule schedule{model::ScheduleKindOf(asked.kind), asked.peak, asked.warmup, asked.total};
  std::string why = remedy::CheckSchedule(schedule);
  std::optional<remedy::WarmupExtension> extension;
  if (why.empty())  // Boundaries are counted as steps: no step of this job was skipped.
    extension = remedy::PlanWarmup({.schedule = schedule,
                                    .step = asked.at,
                                    .boundary = asked.at,
                                    .effective_rate = remedy::BaseRate(schedule, asked.at),
                                    .end = asked.to,
                                    .notch = {.floor = asked.floor, .fall_steps = asked.fall}},
                                   {}, &why);
  if (!extension) {
    console.err << "gyrostatctl: warmup: " << why << "\n";
    return kRefused;
  }
  remedy::LrEnvelope envelope;
  envelope.Add(*extension, envelope.version());
  std::vector<WarmupStep> steps;
  for (const uint64_t step : asked.steps.empty() ? TellingSteps(asked.at, extension->ray.until) : asked.steps) {
    const double base = remedy::BaseRate(schedule, step);
    steps.push_back({step, base, envelope.Rate(base, step)});
  }
  if (request.json) console.out << JsonWarmup(asked.kind, asked.at, extension->ray.until, steps) << "\n";
  else console.out << RenderWarmup(asked.at, extension->ray.until, steps, console.style);
  return kDone;
}

}  // namespace gyrostat::ctl
