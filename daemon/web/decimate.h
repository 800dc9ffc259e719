// A long series as few points as a picture has columns, such that no peak and no dip is lost. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/ports.h"

namespace gyrostat::web {

// At most `points_max` (>= 4) of `points`, in order: first and last, and of each stretch of steps its smallest and its
// largest value. What is not finite hides behind no neighbour: the first such point of a stretch stays too, in the
// place of the smallest. Unchanged where they are few enough.
std::vector<engine::SeriesPoint> Decimate(std::vector<engine::SeriesPoint> points, size_t points_max);

}  // namespace gyrostat::web
