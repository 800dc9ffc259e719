// What the leader's report must say when all ranks' values are reduced into it: the values that each rank really had,
// and sums, means, norms and maxima over them by formulas of the checker's own, in double precision.
#pragma once

#include <string>
#include <vector>

#include "client/src/frame.h"
#include "model/report.h"
#include "model/signal.h"
#include "simulation/plan.h"

namespace gyrostat::simulation {

// What one rank measured at a boundary; model::kAbsent: not that. Loss in nats, norms of its own share.
struct RankSaid {
  bool reported = false;  // Else nothing at all.
  double loss = kNone, tokens = kNone, norm_share = kNone, rank_norm = kNone, step_ms = kNone, checksum = kNone;
  double loss_scale = kNone;
  std::vector<float> maxima = {};                                      // Layers x heads.
  std::vector<float> layer_norm = {}, update_rms = {}, nonfinite = {};  // A value a layer, or none.
  std::vector<float> hidden_absmax = {};                               // Boundaries 0..L, or none.

  static constexpr double kNone = static_cast<double>(model::kAbsent);
  // As the rank's own frame of `step`.
  void WriteTo(model::Step step, client::Frame* frame) const;
  // Whether one of the values that are reduced is NaN or infinite.
  bool IsOdd() const;
};

// The values of one rank at one forward; `weights` are a checksum of what it holds, absent where others hold other
// parts.
RankSaid Measure(const Plan& plan, double weights, std::vector<float> maxima, Dice* dice);

// `said` by rank. `sums`: a SUM of this boundary arrived at the leader. The first thing that is not so; empty: all is
// right.
std::string CheckReport(const Plan& plan, const std::vector<RankSaid>& said, bool sums, const model::Report& report);

}  // namespace gyrostat::simulation
