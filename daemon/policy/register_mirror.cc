#include "policy/register_mirror.h"

#include <cmath>

#include "remedy/registers.h"

namespace gyrostat::policy {

void RegisterMirror::Settle(const std::vector<model::RegisterReading>& readings) {
  registers_.clear();
  doubt_.clear();
  for (const model::RegisterReading& each : readings) registers_[each.id] = each;
}

float RegisterMirror::At(uint32_t id, model::Boundary boundary, float initial) const {
  const auto it = registers_.find(id);
  if (it == registers_.end()) return initial;
  const model::RegisterReading& r = it->second;
  return remedy::Register{.from = r.from, .to = r.to, .first = r.first, .ramp = r.ramp, .version = r.version}.At(
      boundary);
}

bool RegisterMirror::Ramping(uint32_t id, model::Boundary boundary) const {
  const auto it = registers_.find(id);
  return it != registers_.end() && it->second.ramp > 0 &&
         static_cast<int64_t>(boundary) < it->second.first + static_cast<int64_t>(it->second.ramp);
}

uint32_t RegisterMirror::Version(uint32_t id) const {
  const auto it = registers_.find(id);
  return it == registers_.end() ? 0 : it->second.version % remedy::kVersionsSaid;
}

model::RegisterSet RegisterMirror::Set(uint32_t id, float value) const {
  return {.id = id, .value = value, .expected_version = Version(id)};
}

bool RegisterMirror::Expects(const model::Order& order) const {
  for (const model::RegisterSet& each : order.sets)
    if (each.expected_version != Version(each.id)) return false;
  return true;
}

void RegisterMirror::Take(const model::Order& order, model::Boundary boundary) {
  for (const model::RegisterSet& each : order.sets) {
    model::RegisterReading& r = registers_[each.id];
    const uint32_t version = each.expected_version + 1;
    if (r.version % remedy::kVersionsSaid == version % remedy::kVersionsSaid && r.to == each.value) continue;
    // Where it was never set before, only the client knows what it began with; nobody asks before the ramp is over.
    r.from = r.version == 0 ? each.value : At(each.id, boundary, each.value);
    r.id = each.id;
    r.to = each.value;
    r.first = static_cast<int64_t>(boundary);
    r.ramp = remedy::RampOf(each.id, order.ramp);
    ++r.version;
  }
}

bool RegisterMirror::IsSound() const {
  for (const auto& [id, r] : registers_)
    if (id >= remedy::kRegistersMax || r.id != id || !std::isfinite(r.from) || !std::isfinite(r.to)) return false;
  return true;
}

}  // namespace gyrostat::policy
