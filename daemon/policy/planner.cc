#include "policy/planner.h"

#include <algorithm>
#include <cmath>

#include "model/signal.h"
#include "policy/words.h"
#include "remedy/qk_clip.h"

namespace gyrostat::policy {

std::string Look::Sentence(double tau) const {
  return Count(above, "head") + " above tau " + Number(tau) + ", worst " + HeadName(worst.layer, worst.head) + " at " +
         Number(worst.max);
}

Look LookAt(std::span<const float> maxima, uint32_t heads, double tau, double threshold) {
  Look look;
  const float* first = nullptr;
  look.identical = true;
  for (size_t i = 0; i < maxima.size(); ++i) {
    const float max = maxima[i];
    if (model::IsAbsent(max)) continue;
    ++look.measured;
    if (first == nullptr) first = &maxima[i];
    look.identical &= max == *first;
    const HeadPlace place{static_cast<uint32_t>(i / heads), static_cast<uint32_t>(i % heads), max};
    if (!std::isfinite(max)) {
      if (look.nonfinite++ == 0) look.first_nonfinite = place;
      continue;
    }
    if (look.measured - look.nonfinite == 1 || place.max > look.worst.max) look.worst = place;
    look.above += max > tau;
    look.flagged += max > threshold;
  }
  look.identical &= look.measured >= 4;
  return look;
}

std::vector<model::ClipEntry> PlanEntries(std::span<const float> maxima, const PlanBasis& basis) {
  std::vector<model::ClipEntry> entries;
  const uint32_t heads = basis.now->heads();
  for (size_t i = 0; i < maxima.size(); ++i) {
    if (model::IsAbsent(maxima[i]) || !(maxima[i] > basis.threshold)) continue;
    const auto target = remedy::ClipTarget(maxima[i], basis.tau, (*basis.at_forward)[i]);
    const auto layer = static_cast<uint32_t>(i / heads), head = static_cast<uint32_t>(i % heads);
    if (target && *target - std::max(basis.now->At(layer, head), (*basis.on_its_way)[i]) >= basis.step_min)
      entries.push_back({layer, head, maxima[i], *target});
  }
  return entries;
}

}  // namespace gyrostat::policy
