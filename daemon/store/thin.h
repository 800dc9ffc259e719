// What is left of old reports. Pure: no value is changed and no mean is made; a value is kept, at its own step, or
// becomes absent. So whoever reads reports reads these too, and no peak is ever smoothed away.
//
//   kHeads     An array over layers and heads keeps, in each report, the largest value of each layer (so a question
//              about a layer or the whole model has its exact answer), and every value of the kTopHeads heads that were
//              largest in the stretch. Attention entropy, where low is bad, also keeps the smallest of each layer, and
//              its lowest heads. All else stays.
//   kExtremes  Of every kBucketReports reports each series (a scalar, a value of a layer) keeps its smallest and its
//              largest value, and its first NaN. An array over heads keeps the largest of each layer (entropy: and the
//              smallest). `rank_digest`, whose slots rotate, goes. What is no signal (steps, sequence numbers, what
//              local mode clipped) stays.
//
// Thinning again to the same or a lower resolution changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/ports.h"
#include "model/report.h"

namespace gyrostat::store {

inline constexpr size_t kTopHeads = 8;
inline constexpr size_t kBucketReports = 16;

// `reports` are of one attempt of a model of `layers` and `heads` (0: not known), in order of arrival: one chunk.
void Thin(engine::Resolution to, uint32_t layers, uint32_t heads, std::vector<model::Report>* reports);

}  // namespace gyrostat::store
