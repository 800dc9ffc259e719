#include "web/decimate.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gyrostat::web {

std::vector<engine::SeriesPoint> Decimate(std::vector<engine::SeriesPoint> points, size_t points_max) {
  points_max = std::max<size_t>(points_max, 4);
  if (points.size() <= points_max) return points;
  const size_t stretches = (points_max - 2) / 2;
  const double from = static_cast<double>(points.front().step);
  const double width = (static_cast<double>(points.back().step) - from) / static_cast<double>(stretches);
  const auto stretch_of = [&](const engine::SeriesPoint& point) {
    const double at = (static_cast<double>(point.step) - from) / width;
    return std::min(static_cast<size_t>(std::max(at, 0.0)), stretches - 1);
  };
  std::vector<engine::SeriesPoint> kept = {points.front()};
  kept.reserve(points_max);
  for (size_t begin = 1, last = points.size() - 1; begin < last;) {
    const size_t stretch = stretch_of(points[begin]);
    size_t low = begin, high = begin, strange = last, end = begin;
    for (; end < last && stretch_of(points[end]) == stretch; ++end) {
      const double value = points[end].value;
      if (!std::isfinite(value)) {
        strange = std::min(strange, end);
        continue;
      }
      if (!std::isfinite(points[low].value) || value < points[low].value) low = end;
      if (!std::isfinite(points[high].value) || value > points[high].value) high = end;
    }
    if (strange != last) low = strange;
    kept.push_back(points[std::min(low, high)]);
    if (low != high) kept.push_back(points[std::max(low, high)]);
    begin = end;
  }
  kept.push_back(points.back());
  return kept;
}

}  // namespace gyrostat::web
