#include "config/suggest.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <utility>

namespace gyrostat::config {
namespace {

// Longer words are no typing mistakes, and the distance costs their product.
constexpr size_t kTypedMax = 100;

// Insertions, deletions and replacements that make `b` of `a`.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string_view LastPart(std::string_view name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

std::string Nearest(const std::string& typed, const std::vector<std::string>& names) {
  if (typed.size() > kTypedMax) return "";
  // A third of the whole may be wrong; of the last part alone less, since many sections share such words.
  const size_t word = LastPart(typed).size();
  const size_t whole_max = std::max<size_t>(word / 3, 1), last_max = std::max<size_t>(word / 4, 1);
  std::string best;
  std::pair best_distance{SIZE_MAX, SIZE_MAX};  // Of the nearer of the two, then of the whole: the same section first.
  for (const std::string& name : names) {
    const size_t whole = Distance(typed, name), last = Distance(LastPart(typed), LastPart(name));
    if (whole > whole_max && last > last_max) continue;
    const std::pair distance{std::min(whole, last), whole};
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = name;
  }
  return best;
}

}  // namespace gyrostat::config
