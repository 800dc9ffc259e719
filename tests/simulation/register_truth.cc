#include "simulation/register_truth.h"

#include <algorithm>
#include <cmath>

namespace gyrostat::simulation {
namespace {

using client::Proposal;
using model::InterventionKind;

bool IsNear(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); }
bool IsAlpha(uint32_t id) { return id >= 64 && id < 1088; }
bool IsBeta(uint32_t id) { return id >= 1088; }

// Whether these are the registers that an order of this kind must set.
bool IsGroup(const Plan& plan, const Proposal& p) {
  std::vector<uint32_t> ids;
  for (const client::ProposalEntry& e : p.entries) ids.push_back(e.what);
  if (ids.empty() || !std::is_sorted(ids.begin(), ids.end(), std::less_equal<>())) return false;
  switch (p.intervention) {
    case InterventionKind::kDeepnormAlpha:
      return std::all_of(ids.begin(), ids.end(), [&plan](uint32_t id) {
        return (IsAlpha(id) && id - 64 < plan.layers) || (IsBeta(id) && id - 1088 < plan.layers);
      });
    case InterventionKind::kLrScale:
      return ids == std::vector<uint32_t>{0, 1};
    case InterventionKind::kSkipStep:
      return ids == std::vector<uint32_t>{3};
    case InterventionKind::kWarmupExtension:
      return ids == std::vector<uint32_t>{16, 17, 18, 19, 20, 21};
    default:
      return false;
  }
}

// The extension that six entries say is in bounds: at most as steep as the declared warm-up, at most 8 of it long.
bool IsExtension(const Proposal& p) {
  const auto of = [&p](uint32_t id) { return static_cast<double>(p.entries[id - 16].value); };
  const double begin = of(18) - of(20), room = 1 + 2e-7;
  return begin >= 0 && of(16) <= kPeak * room && of(17) <= kPeak / static_cast<double>(kWarmup) * room &&
         of(19) > of(18) && of(19) - begin <= 8 * static_cast<double>(kWarmup) && of(21) > 0 && of(21) <= 1;
}

}  // namespace

double BaseRate(model::Step step) {
  const auto at = static_cast<double>(std::clamp<model::Step>(step, 0, kDecayUntil));
  constexpr auto kUp = static_cast<double>(kWarmup), kEnd = static_cast<double>(kDecayUntil);
  return at < kUp ? kPeak * at / kUp : kPeak * (1 - 0.9 * (at - kUp) / (kEnd - kUp));
}

float RegisterTruth::Now(uint32_t id, model::Boundary b) const {
  if (const auto set = registers.find(id); set != registers.end()) return set->second.At(b);
  return IsAlpha(id) || IsBeta(id) || id == 0 || id == 21 ? 1 : 0;
}

double RegisterTruth::Rate(double base, int64_t at) const {
  if (!(base > 0)) return base;
  double rate = base;
  for (const Fall& fall : falls)
    if (at >= fall.boundary && at < fall.boundary + fall.length)
      rate = std::min(rate, base * (1 - (1 - fall.floor) * static_cast<double>(at - fall.boundary) /
                                            static_cast<double>(fall.length)));
  for (const Ray& ray : rays)
    if (at >= ray.boundary) rate = std::min(rate, ray.Cap(at));
  return scaled && (scale_until == 0 || at <= scale_until) ? rate * scale : rate;
}

void RegisterTruth::Passed(double base, int64_t at) {
  std::erase_if(rays, [&](const Ray& ray) { return at >= ray.until && ray.Cap(at) * (1 + 1e-9) >= base; });
  std::erase_if(falls, [&](const Fall& fall) { return at >= fall.boundary + fall.length; });
}

bool RegisterTruth::IsRight(const Plan&, const client::ProposalEntry& e, uint32_t ramp, model::Boundary b) const {
  const float now = Now(e.what, b);
  if (IsAlpha(e.what)) return ramp <= 200 && e.value > 0 && e.value <= 5 * now && now <= 5 * e.value;
  if (IsBeta(e.what)) return e.value > 0 && e.value <= now && now <= 10 * e.value;
  if (e.what == 0) return e.value >= 0.01f && e.value <= 1;
  const bool whole = e.what != 16 && e.what != 17 && e.what != 21;
  return !whole || (std::floor(e.value) == e.value && e.value < 16777216 && (e.what != 3 || e.value >= 1));
}

RegisterTruth::Verdict RegisterTruth::Judge(const Plan& plan, const Proposal& p, model::Boundary b) const {
  if (!IsGroup(plan, p)) return Verdict::kRefuse;
  for (const client::ProposalEntry& e : p.entries) {
    const auto set = registers.find(e.what);
    if (e.stamp != (set == registers.end() ? 0 : set->second.version)) return Verdict::kVoid;
  }
  if (p.ramp > 0 && p.intervention != InterventionKind::kDeepnormAlpha) return Verdict::kRefuse;
  for (const client::ProposalEntry& e : p.entries)
    if (!IsRight(plan, e, p.ramp, b)) return Verdict::kRefuse;
  if (p.intervention == InterventionKind::kWarmupExtension && (!IsExtension(p) || rays.size() >= 8))
    return Verdict::kRefuse;
  const float last = p.entries.back().value;
  const bool past = (p.intervention == InterventionKind::kSkipStep ||
                     (p.intervention == InterventionKind::kLrScale && last != 0)) &&
                    last <= static_cast<float>(b);
  return past ? Verdict::kVoid : Verdict::kApply;
}

void RegisterTruth::Apply(const Proposal& p, model::Boundary b) {
  for (const client::ProposalEntry& e : p.entries) {
    const float from = Now(e.what, b);
    remedy::Register& r = registers[e.what];
    r = {from, e.value, static_cast<int64_t>(b), IsBeta(e.what) ? 0 : p.ramp, r.version + 1};
  }
  const auto of = [&p](uint32_t id) { return static_cast<double>(p.entries[id - 16].value); };
  if (p.intervention == InterventionKind::kWarmupExtension) {
    const auto begin = static_cast<int64_t>(of(18)), length = static_cast<int64_t>(of(20));
    rays.push_back({begin, static_cast<int64_t>(of(19)), of(16), of(17)});
    if (length > 0 || of(21) < 1) falls.push_back({begin - length, length, of(21)});
  } else if (p.intervention == InterventionKind::kLrScale) {
    scaled = true;
    scale = static_cast<double>(p.entries[0].value);
    scale_until = static_cast<int64_t>(p.entries[1].value);
  }
}

RegisterTruth RegisterTruth::Shifted(int64_t shift) const {
  RegisterTruth moved = *this;
  for (auto& [id, r] : moved.registers) {
    r.first += shift;
    if ((id == 1 || id == 3) && r.to != 0)
      r.to = static_cast<float>(std::max<int64_t>(1, static_cast<int64_t>(r.to) + shift));
  }
  if (moved.registers.contains(18)) {
    // A ray that began before this attempt begins at its boundary 0, higher up.
    const auto begin = static_cast<int64_t>(moved.registers[18].to) + shift;
    const auto until = static_cast<int64_t>(moved.registers[19].to) + shift;
    if (begin < 0)
      moved.registers[16].to =
          static_cast<float>(static_cast<double>(moved.registers[16].to) +
                             static_cast<double>(moved.registers[17].to) * static_cast<double>(-begin));
    moved.registers[18].to = static_cast<float>(std::max<int64_t>(begin, 0));
    moved.registers[19].to = static_cast<float>(std::max<int64_t>(until, begin < 0 ? 1 : until));
  }
  for (Ray& ray : moved.rays) ray.boundary += shift, ray.until += shift;
  for (Fall& fall : moved.falls) fall.boundary += shift;
  if (scale_until != 0) {
    moved.scale_until += shift;
    if (moved.scale_until <= 0) moved.scaled = false;
  }
  return moved;
}

bool RegisterTruth::IsIn(const client::RestoredState& state, model::Boundary b) const {
  if (state.registers.size() != registers.size()) return false;
  for (const model::RegisterReading& each : state.registers) {
    const auto mine = registers.find(each.id);
    if (mine == registers.end() ||
        mine->second != remedy::Register{each.from, each.to, each.first, each.ramp, each.version})
      return false;
  }
  for (const uint64_t ahead : {1u, 7u, 40u, 200u})
    if (!IsNear(state.envelope.Rate(kPeak, b + ahead), Rate(kPeak, static_cast<int64_t>(b + ahead)))) return false;
  return true;
}

}  // namespace gyrostat::simulation
