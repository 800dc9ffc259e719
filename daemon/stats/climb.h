// How far a series stands above the lowest level it has had: for what should fall or stay, and must not creep up.
//
// The level is the median of the last `window` values, so that a burst shorter than half of it moves nothing, and the
// lowest level is one that held for four values: what a few bad ones pulled down for a moment is none. The noise
// is read from first differences (1.4826 MAD / sqrt 2), which a trend and a jump leave alone, and the excess is told in
// standard errors of the median, 1.2533 noise / sqrt(window), widened while few values are known.
//
// Sources: methods.md §10.1 (median and MAD), §10.3 (small samples); 1.2533 = sqrt(pi / 2), the Gaussian efficiency of
// the median; von Neumann (1941) for a scale from successive differences.
//
// Pure; same values, same bits, also across save and load. Not thread-safe. Observe does not allocate once full.
#pragma once

#include <cstdint>
#include <vector>

#include "base/archive.h"
#include "stats/robust_baseline.h"

namespace gyrostat::stats {

struct ClimbOptions {
  uint32_t window = 32;         // Values in the level. [4, 4096].
  uint32_t noise_window = 256;  // First differences in the noise. [16, 4096].
  double noise_share = 0;       // Of |lowest|: the noise is at least that, a ripple on a flat series is none. >= 0.
};

class Climb {
 public:
  explicit Climb(ClimbOptions options);

  void Observe(double value);  // Must be finite.
  bool known() const { return known_; }  // There is a lowest level.
  double level() const { return level_.median(); }
  double lowest() const { return lowest_; }  // Of all levels since the start that held.
  double excess() const { return known_ && level() > lowest_ ? level() - lowest_ : 0; }
  double noise() const;
  // excess() in standard errors; 0 while not known, infinite where there is an excess and no noise at all.
  double Deviations() const;
  void Clear();

  template <class Archive>
  void Fields(Archive& a) { a(level_, differences_, held_, previous_, has_previous_, lowest_, known_); }

 private:
  ClimbOptions options_;
  RobustBaseline level_, differences_;
  std::vector<double> held_;  // The last few levels, oldest first.
  double previous_ = 0;
  bool has_previous_ = false;
  double lowest_ = 0;
  bool known_ = false;
};

}  // namespace gyrostat::stats
