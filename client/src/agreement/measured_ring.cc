#include "client/src/agreement/measured_ring.h"

#include <algorithm>

#include "client/src/agreement/lanes.h"

namespace gyrostat::client {

MeasuredRing::MeasuredRing(size_t heads) : heads_(heads), slots_(heads == 0 ? 0 : kBoundaries) {
  for (Slot& slot : slots_) slot.maxima.resize(heads);
}

void MeasuredRing::Begin(model::Boundary boundary, uint64_t version) {
  if (slots_.empty()) return;
  Slot& slot = slots_[boundary % kBoundaries];
  slot.boundary = boundary;
  slot.version = version;
  slot.begun = true;
  slot.known = false;
}

void MeasuredRing::Take(model::Boundary boundary, std::span<const float> lanes, bool usable) {
  if (slots_.empty() || lanes.size() != heads_) return;
  Slot& slot = slots_[boundary % kBoundaries];
  if (!slot.begun || slot.boundary != boundary) return;
  slot.known = usable;
  std::transform(lanes.begin(), lanes.end(), slot.maxima.begin(), FromLane);
}

const MeasuredRing::Slot* MeasuredRing::Find(model::Boundary boundary, model::Boundary now) const {
  if (slots_.empty() || boundary > now || boundary + kBoundaries <= now) return nullptr;
  const Slot& slot = slots_[boundary % kBoundaries];
  return slot.known && slot.boundary == boundary ? &slot : nullptr;
}

const MeasuredRing::Slot* MeasuredRing::Newest() const {
  const Slot* newest = nullptr;
  for (const Slot& slot : slots_)
    if (slot.known && (newest == nullptr || slot.boundary > newest->boundary)) newest = &slot;
  return newest;
}

void MeasuredRing::Clear() {
  for (Slot& slot : slots_) slot.begun = slot.known = false;
}

}  // namespace gyrostat::client
