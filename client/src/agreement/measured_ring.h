// What all ranks measured together at the last 64 boundaries: the reduced maxima of each, and the ledger version under
// which that forward ran (protocol.md §8). Equal on all ranks, since every value came out of R.
//
// Not thread-safe. Memory is taken at construction: 64 x heads floats.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/ids.h"

namespace gyrostat::client {

class MeasuredRing {
 public:
  static constexpr model::Boundary kBoundaries = 64;

  struct Slot {
    model::Boundary boundary = 0;
    uint64_t version = 0;  // Of the ledger under which this forward ran.
    bool begun = false;    // Version known.
    bool known = false;    // Maxima known, and good enough to be a basis.
    std::vector<float> maxima;
  };

  // `heads` 0: nothing is ever kept.
  explicit MeasuredRing(size_t heads);

  // Forward `boundary` ran under `version`. What was 64 boundaries before is forgotten.
  void Begin(model::Boundary boundary, uint64_t version);
  // What R_boundary said about a forward that has begun. `usable` false: kept out.
  void Take(model::Boundary boundary, std::span<const float> lanes, bool usable);
  // Null when unknown, too old at boundary `now`, or unusable.
  const Slot* Find(model::Boundary boundary, model::Boundary now) const;
  // The newest that is known, or null.
  const Slot* Newest() const;
  // The weights got another history.
  void Clear();

 private:
  const size_t heads_;
  std::vector<Slot> slots_;
};

}  // namespace gyrostat::client
