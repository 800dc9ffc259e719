// A long series as few points as a picture has columns, such that no peak, no dip and nothing strange is lost. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/ports.h"

namespace gyrostat::store {

// At most `points_max` (at least 2) of `points`, in order, each at its own step: both ends, and of each of equal parts
// the smallest and the largest finite value and the first NaN, +Inf and -Inf, as far as the series has such. Unchanged
// where they are few enough. Where the bound is too small even for one part, the ends go before what is not finite, and
// that before the extremes.
std::vector<engine::SeriesPoint> Decimate(std::vector<engine::SeriesPoint> points, size_t points_max);

}  // namespace gyrostat::store
