// From a query to the values of an array that it means, and from those to one number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ports.h"
#include "model/signal.h"

namespace gyrostat::store {

// Whether layer and head make sense for the signal at all. INVALID_ARGUMENT says why not.
absl::Status CheckQuery(const engine::SeriesQuery& query);

// How many values of an array of `size` belong to one layer of a model of `layers` and `heads` (0: not known); 1 where
// the signal has no heads. Without a spec the array counts as one layer.
size_t HeadsPerLayer(model::Signal signal, size_t size, uint32_t layers, uint32_t heads);

// Indices into an array of `size` values of the queried signal, which a model of `layers` and `heads` (0: not known)
// reported. INVALID_ARGUMENT when it has no such layer or head.
absl::StatusOr<std::vector<size_t>> IndicesOf(const engine::SeriesQuery& query, size_t size, uint32_t layers,
                                              uint32_t heads);

// The larger of the two, where an absent value loses against all and a NaN, which must not hide, wins.
double Larger(double a, double b);

}  // namespace gyrostat::store
