// How the values that the ranks of a job have of one signal become the run's one value (design.md §4, "reduced by";
// formulas: methods.md §2.5). A table beside signal.h's: the client reduces by it, and no decision reads it.
#pragma once

#include <cstdint>

#include "model/signal.h"

namespace gyrostat::model {

enum class Reduction : uint8_t {
  kLeader,       // Not reduced: the leader's own.
  kMax,          // Largest. NaN wins.
  kMin,          // Smallest. NaN wins.
  kSum,          // Counts that are added up; the largest where a job has no sums.
  kMean,         // Mean over the tokens of all ranks.
  kSquares,      // Each rank says the norm of its share of one copy of the model; all copies say the same:
                 // sqrt(sum of squares / copies that say it).
  kMeanSquares,  // Root of the mean square over the shares.
  kGiven,        // Global already, the same on all ranks that say it: largest, NaN wins. Else from shares, as kSquares.
  kDerived,      // Computed from reduced values.
  kPerRank,      // Not reduced: a slot for each rank.
};

// kLeader for kNone and strangers.
Reduction ReductionOf(Signal signal);

}  // namespace gyrostat::model
