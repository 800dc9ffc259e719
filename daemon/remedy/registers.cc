#include "remedy/registers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/mix.h"
#include "remedy/ticks.h"

namespace gyrostat::remedy {
namespace {

constexpr float kUnread = std::numeric_limits<float>::quiet_NaN();

bool IsSame(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

}  // namespace

float Register::At(model::Boundary at) const {
  const int64_t passed = static_cast<int64_t>(at) - first;
  if (passed >= static_cast<int64_t>(ramp) || ramp == 0) return to;
  if (passed <= 0 || !(from > 0) || !(to > 0)) return from;
  // Whole ticks, by the library's own exp: a libm would differ between machines.
  const double ratio = static_cast<double>(std::max(from, to)) / static_cast<double>(std::min(from, to));
  const Ticks ticks = LnTicks(ratio) * passed / static_cast<int64_t>(ramp);
  const double part = ExpMinus(ticks);
  return static_cast<float>(to < from ? static_cast<double>(from) * part : static_cast<double>(from) / part);
}

RegisterFile::RegisterFile(std::vector<RegisterBounds> bounds) : bounds_(std::move(bounds)) {
  bounds_.resize(std::min<size_t>(bounds_.size(), kRegistersMax));
  observed_.assign(bounds_.size(), kUnread);
  registers_.resize(bounds_.size());
  Reset();
}

const char* RegisterFile::Refusal(uint32_t id, float value, uint32_t ramp, model::Boundary boundary) const {
  if (id >= registers_.size() || bounds_[id].max <= 0) return "a register that this job does not have";
  const RegisterBounds& bounds = bounds_[id];
  if (!(std::isfinite(value) && value >= bounds.min && value <= bounds.max))
    return "a value outside the register's bounds";
  if (ramp > bounds.ramp_max) return "a ramp longer than the register's bound";
  if (bounds.ln_change <= 0) return nullptr;
  const float now = registers_[id].At(boundary);
  if (!(now > 0) || !(value > 0)) return "a change from or to zero";
  const double ratio = static_cast<double>(std::max(now, value)) / static_cast<double>(std::min(now, value));
  const auto limit = static_cast<Ticks>(bounds.ln_change * static_cast<double>(kTicksPerNat) + 0.5);
  return LnTicks(ratio) > limit ? "a change larger than the register's bound" : nullptr;
}

bool RegisterFile::Expects(uint32_t id, uint32_t expected) const {
  return registers_[id].version % kVersionsSaid == expected;
}

void RegisterFile::Set(uint32_t id, float value, uint32_t ramp, model::Boundary boundary) {
  Register& r = registers_[id];
  set_hash_ -= HashOf(id);
  r.from = r.At(boundary);
  r.to = value;
  r.first = static_cast<int64_t>(boundary);
  r.ramp = ramp;
  ++r.version;
  set_hash_ += HashOf(id);
}

void RegisterFile::Observe(uint32_t id, float value) {
  if (id >= registers_.size()) return;
  if (observed_begin_ == observed_end_) observed_begin_ = id;
  observed_begin_ = std::min(observed_begin_, id);
  observed_end_ = std::max(observed_end_, id + 1);
  observed_[id] = value;
}

void RegisterFile::Reset() {
  set_hash_ = 0;
  for (uint32_t id = 0; id < registers_.size(); ++id) {
    registers_[id] = {.from = bounds_[id].initial, .to = bounds_[id].initial};
    set_hash_ += HashOf(id);
  }
}

std::vector<model::RegisterReading> RegisterFile::Saved() const {
  std::vector<model::RegisterReading> saved;
  for (uint32_t id = 0; id < registers_.size(); ++id)
    if (const Register& r = registers_[id]; r.version > 0)
      saved.push_back({id, r.from, r.to, r.first, r.ramp, r.version});
  return saved;
}

bool RegisterFile::Restore(std::span<const model::RegisterReading> saved, model::Boundary then, model::Boundary now) {
  for (const model::RegisterReading& each : saved)
    if (each.id >= registers_.size() || bounds_[each.id].max <= 0 || !std::isfinite(each.from) ||
        !std::isfinite(each.to))
      return false;
  Reset();
  for (const model::RegisterReading& each : saved) {
    set_hash_ -= HashOf(each.id);
    registers_[each.id] = {.from = each.from,
                           .to = each.to,
                           .first = each.first + static_cast<int64_t>(now) - static_cast<int64_t>(then),
                           .ramp = each.ramp,
                           .version = each.version};
    set_hash_ += HashOf(each.id);
  }
  return true;
}

uint64_t RegisterFile::HashOf(uint32_t id) const {
  const Register& r = registers_[id];
  if (r.version == 0 && IsSame(r.to, bounds_[id].initial)) return 0;
  uint64_t h = base::Mix(id, std::bit_cast<uint32_t>(r.from));
  h = base::Mix(h, std::bit_cast<uint32_t>(r.to));
  h = base::Mix(h, static_cast<uint64_t>(r.first));
  return base::Mix(h, uint64_t{r.ramp} << 32 | r.version);
}

uint64_t RegisterFile::HashAt(model::Boundary at) const {
  uint64_t h = set_hash_;
  for (uint32_t id = observed_begin_; id < observed_end_; ++id)
    if (!IsSame(observed_[id], kUnread) && !IsSame(observed_[id], registers_[id].At(at)))
      h += base::Mix(~uint64_t{id}, std::bit_cast<uint32_t>(observed_[id]));
  return h;
}

uint64_t RegisterFile::BoundsHash() const {
  uint64_t h = bounds_.size();
  for (size_t id = 0; id < bounds_.size(); ++id) {
    h = base::Mix(h, std::bit_cast<uint32_t>(bounds_[id].min));
    h = base::Mix(h, std::bit_cast<uint32_t>(bounds_[id].max));
    h = base::Mix(h, std::bit_cast<uint64_t>(bounds_[id].ln_change));
    h = base::Mix(h, uint64_t{bounds_[id].ramp_max} << 32 | std::bit_cast<uint32_t>(bounds_[id].initial));
  }
  return h;
}

}  // namespace gyrostat::remedy
