#include "client/src/job_registers.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/mix.h"

namespace gyrostat::client {
namespace {

// As remedy::Ray::Shifted does, on the registers that hold the newest ray.
void ShiftRay(int64_t shift, std::vector<model::RegisterReading>* saved) {
  const auto find = [saved](uint32_t id) {
    return std::find_if(saved->begin(), saved->end(), [id](const auto& each) { return each.id == id; });
  };
  for (uint32_t id = remedy::kRegisterRayRate; id <= remedy::kRegisterFallFloor; ++id)
    if (find(id) == saved->end()) return;
  const remedy::Ray ray = ExtensionOf([&find](uint32_t id) { return find(id)->to; }).ray.Shifted(shift);
  find(remedy::kRegisterRayRate)->to = static_cast<float>(ray.rate);
  find(remedy::kRegisterRayBoundary)->to = static_cast<float>(ray.boundary);
  find(remedy::kRegisterRayUntil)->to = static_cast<float>(ray.until);
}

}  // namespace

void SetAll(std::span<const model::RegisterSet> sets, uint32_t ramp, model::Boundary boundary,
            remedy::RegisterFile* registers) {
  for (const model::RegisterSet& set : sets) registers->Set(set.id, set.value, remedy::RampOf(set.id, ramp), boundary);
}

bool RestoreAll(std::span<const model::RegisterReading> saved, model::Boundary then, model::Boundary now,
                remedy::RegisterFile* registers, std::string* why) {
  for (const model::RegisterReading& each : saved)
    if (each.id >= registers->size() || registers->bounds(each.id).max <= 0) {
      *why = "the state holds " + RegisterName(each.id) + ", which this job does not have as it is declared";
      return false;
    }
  std::vector<model::RegisterReading> moved(saved.begin(), saved.end());
  const int64_t shift = static_cast<int64_t>(now) - static_cast<int64_t>(then);
  for (model::RegisterReading& each : moved) {
    const bool of_ray = each.id == remedy::kRegisterRayBoundary || each.id == remedy::kRegisterRayUntil;
    if (!IsBoundary(each.id) || of_ray || each.to == 0) continue;
    each.to = static_cast<float>(std::max<int64_t>(1, static_cast<int64_t>(each.to) + shift));
  }
  ShiftRay(shift, &moved);
  if (registers->Restore(moved, then, now)) return true;
  *why = "the state holds a register that is not a finite number";
  return false;
}

JobRegisters::JobRegisters(const model::ModelSpec* model) : model_(model), file_(RegisterBoundsFor(*model)) {}

SetsVerdict JobRegisters::Judge(model::InterventionKind kind, std::span<const model::RegisterSet> sets, uint32_t ramp,
                                model::Boundary boundary) const {
  return JudgeSets(*model_, file_, envelope_, kind, sets, ramp, boundary);
}

void JobRegisters::Apply(model::InterventionKind kind, std::span<const model::RegisterSet> sets, uint32_t ramp,
                         model::Boundary boundary) {
  SetAll(sets, ramp, boundary, &file_);
  const auto read = [this](uint32_t id) { return file_.at(id).to; };
  if (kind == model::InterventionKind::kWarmupExtension) envelope_.Add(ExtensionOf(read), envelope_.version());
  if (kind == model::InterventionKind::kLrScale)
    envelope_.Scale(static_cast<double>(read(remedy::kRegisterLrScale)),
                    static_cast<model::Boundary>(read(remedy::kRegisterLrScaleUntil)), envelope_.version());
}

double JobRegisters::Rate(double base, model::Boundary at) {
  if (base_of_ != at) {
    base_of_ = at;
    base_ = base;
  }
  return envelope_.Rate(base, at);
}

void JobRegisters::Passed(model::Boundary at) {
  if (base_of_ == at && at != 0) envelope_.Advance(base_, at);
}

void JobRegisters::Reset() {
  file_.Reset();
  envelope_ = {};
}

bool JobRegisters::Restore(std::span<const model::RegisterReading> saved, const remedy::LrEnvelope& envelope,
                           model::Boundary then, model::Boundary now, std::string* why) {
  if (!RestoreAll(saved, then, now, &file_, why)) return false;
  envelope_ = envelope;
  envelope_.Shift(static_cast<int64_t>(now) - static_cast<int64_t>(then));
  return true;
}

uint64_t JobRegisters::BoundsHash() const {
  const uint64_t h = base::Mix(file_.BoundsHash(), std::bit_cast<uint64_t>(model_->schedule_peak.value_or(0)));
  return base::Mix(h, model_->warmup_steps.value_or(0));
}

uint64_t JobRegisters::HashAt(model::Boundary at) const { return base::Mix(file_.HashAt(at), envelope_.hash()); }

}  // namespace gyrostat::client
