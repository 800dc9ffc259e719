#include "remedy/clip_table.h"

#include <algorithm>
#include <cmath>

#include "remedy/qk_clip.h"

namespace gyrostat::remedy {

using model::ClipVariant;

std::optional<std::vector<ClipRow>> ClipTable(const std::vector<double>& max_logits, double tau, uint32_t kv_heads,
                                              ClipVariant variant, std::string* why) {
  const size_t heads = max_logits.size();
  if (heads == 0 || heads > model::kHeadsMax) {
    *why = std::to_string(heads) + " maxima, wanted 1 to " + std::to_string(model::kHeadsMax);
    return std::nullopt;
  }
  if (!std::isfinite(tau) || tau <= 0) {
    *why = "tau is " + std::to_string(tau) + ", wanted a finite number above 0";
    return std::nullopt;
  }
  const size_t keys = kv_heads == 0 ? heads : kv_heads;
  if (heads % keys != 0) {
    *why = std::to_string(keys) + " key heads for " + std::to_string(heads) + " heads, wanted a divisor";
    return std::nullopt;
  }
  if (variant == ClipVariant::kMha && keys != heads) {
    *why = "variant mha with " + std::to_string(keys) + " key heads for " + std::to_string(heads) +
           " heads, wanted as many, or variant group_min or q_only";
    return std::nullopt;
  }
  std::vector<ClipRow> rows(heads);
  for (size_t h = 0; h < heads; ++h)
    rows[h] = {.head = static_cast<uint32_t>(h), .max = max_logits[h], .gamma = Gamma(max_logits[h], tau)};
  const ClipShape shape{.variant = variant, .split = variant == ClipVariant::kQOnly ? 1.0 : 0.5, .layers = 1,
                        .heads = static_cast<uint32_t>(heads), .kv_heads = static_cast<uint32_t>(keys)};
  const size_t group = shape.GroupHeads();
  for (size_t first = 0; first < heads; first += group) {
    double least = 1;
    for (size_t h = first; h < first + group; ++h) least = std::min(least, rows[h].gamma.value_or(1));
    for (size_t h = first; h < first + group; ++h) {
      const double gamma = shape.SharesFactor() ? least : rows[h].gamma.value_or(1);
      rows[h].q = shape.split == 1 ? gamma : std::sqrt(gamma);
      rows[h].k = shape.split == 1 ? 1 : std::sqrt(gamma);
      rows[h].q_rope = variant == ClipVariant::kMla ? gamma : rows[h].q;
    }
  }
  return rows;
}

}  // namespace gyrostat::remedy
