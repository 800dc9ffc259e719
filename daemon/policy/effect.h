// Did an intervention other than a clip help? Compares the gauge of the finding that called for it over as many reports
// before as after: min(200, a tenth of the run), at least 20 (design.md §6).
//
// effective     the level fell by more than half its spread, or the finding is over and the level is not higher.
// harmful       it is not finite any more, or ends above all that it was before by more than three spreads.
// ineffective   neither. inconclusive  fewer than 20 values on a side, or nothing called for it and nothing got worse.
//
// Levels are medians, spreads 1.4826 median absolute deviations: single bad batches decide nothing. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/ids.h"
#include "policy/gauge.h"
#include "policy/outcome.h"

namespace gyrostat::policy {

// Reports on each side for a run of so many steps; 0: not known.
size_t EffectWindow(uint64_t total_steps);

class EffectWatch {
 public:
  struct Terms {
    Gauge gauge = Gauge::kLoss;
    std::vector<double> before = {};  // Its levels, oldest first, the newest just before the intervention.
    size_t window = 20;
    uint32_t skip = 0;                // Boundaries until it has its full effect: a ramp.
  };
  // It was applied at that boundary.
  void Open(Terms terms, model::Boundary boundary);
  bool open() const { return open_; }

  // The levels of a report, and whether what called for the intervention is still there (nothing: nothing called for
  // it). The verdict comes once.
  std::optional<Verdict> Observe(model::Boundary boundary, const Levels& levels, std::optional<bool> still_there);

  template <class Archive>
  void Fields(Archive& a) { a(gauge_, before_, after_, window_, from_, reports_, open_); }

 private:
  Verdict AtEnd(std::optional<bool> still_there) const;

  Gauge gauge_ = Gauge::kLoss;
  std::vector<double> before_, after_;
  uint64_t window_ = 20;
  model::Boundary from_ = 0;  // The first boundary that counts.
  uint64_t reports_ = 0;      // Since then.
  bool open_ = false;
};

}  // namespace gyrostat::policy
