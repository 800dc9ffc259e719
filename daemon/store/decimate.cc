#include "store/decimate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace gyrostat::store {
namespace {

enum Kind : size_t { kNan, kAbove, kBelow, kFinite };
Kind KindOf(double value) {
  if (std::isnan(value)) return kNan;
  return std::isfinite(value) ? kFinite : value > 0 ? kAbove : kBelow;
}

// What goes first where not all can stay.
enum Rank { kEnd, kStrange, kExtreme };
struct Kept {
  Rank rank;
  size_t index;
};

// Of the points from `begin` to before `end`.
void KeepOfPart(const std::vector<engine::SeriesPoint>& points, size_t begin, size_t end, std::vector<Kept>* kept) {
  std::array<size_t, 3> first = {end, end, end};  // By kind.
  size_t low = end, high = end;
  for (size_t i = begin; i < end; ++i) {
    const double value = points[i].value;
    const Kind kind = KindOf(value);
    if (kind != kFinite) {
      first[kind] = std::min(first[kind], i);
      continue;
    }
    if (low == end || value < points[low].value) low = i;
    if (high == end || value > points[high].value) high = i;
  }
  for (const size_t i : first)
    if (i != end) kept->push_back({kStrange, i});
  if (low != end) kept->push_back({kExtreme, low});
  if (high != low) kept->push_back({kExtreme, high});
}

}  // namespace

std::vector<engine::SeriesPoint> Decimate(std::vector<engine::SeriesPoint> points, size_t points_max) {
  points_max = std::max<size_t>(points_max, 2);
  if (points.size() <= points_max) return points;
  std::array<size_t, 4> seen = {};
  for (const engine::SeriesPoint& each : points) seen[KindOf(each.value)] = 1;
  const size_t of_part = seen[kNan] + seen[kAbove] + seen[kBelow] + 2;
  const size_t inner = points.size() - 2;  // Between the ends.
  const size_t parts = std::max<size_t>(1, std::min(inner, (points_max - 2) / of_part));
  std::vector<Kept> kept = {{kEnd, 0}, {kEnd, points.size() - 1}};
  for (size_t part = 0; part < parts; ++part)
    KeepOfPart(points, 1 + inner * part / parts, 1 + inner * (part + 1) / parts, &kept);
  if (kept.size() > points_max) {
    std::ranges::stable_sort(kept, {}, &Kept::rank);
    kept.resize(points_max, Kept{kEnd, 0});
  }
  std::ranges::sort(kept, {}, &Kept::index);
  std::vector<engine::SeriesPoint> few;
  few.reserve(kept.size());
  for (const Kept& each : kept) few.push_back(points[each.index]);
  return few;
}

}  // namespace gyrostat::store
