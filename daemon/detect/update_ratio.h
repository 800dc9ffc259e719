// Says that a layer's weight update jumps before the loss does.
//
// Judged is ln(update_rms / learning_rate): with Adam it is nearly constant, and the schedule is out of it. Where no
// rate is reported, ln(update_rms). Per layer against the median and MAD of its last 64 values (stats/robust_baseline):
// 8 deviations and 3 times the median is a jump. One layer for a moment is information; three reports in a row, or a
// tenth of the layers (and two at least) at once, a warning. The layer that is farthest off when it begins is named.
//
// Formula and source: methods.md §10.1; a large update RMS precedes the loss spike by 1-8 steps (arXiv 2304.13013,
// as cited in methods.md §6), because the second moment is stale.
#pragma once

#include "detect/condition.h"
#include "detect/detector.h"
#include "detect/discontinuity.h"
#include "stats/robust_baseline.h"

namespace gyrostat::detect {

struct UpdateRatioOptions {
  uint32_t window_steps = 64;     // [32, 1024].
  double deviations = 8;          // [3, 100].
  double ratio = 3;               // Times the median. > 1.
  double sigma_min = 0.05;        // Of the logarithm: updates of a large run are steady to a few percent. >= 0.
  uint32_t lasting_reports = 3;   // In a row: a warning. [1, 1000].
  double layers_share = 0.1;      // Of the layers at once, 2 at least: a warning. (0, 1].
  uint32_t heal_reports = 3;      // [1, 1000].
  uint32_t abandon_reports = 200; // Then the new level is the usual one. [1, 1000000].
  template <class Archive>
  void Fields(Archive& a) {
    a(window_steps, deviations, ratio, sigma_min, lasting_reports, layers_share, heal_reports, abandon_reports);
    if constexpr (Archive::kLoading)
      if (window_steps < 32 || window_steps > 1024) a.Fail();
  }
};

class UpdateRatio : public Detector {
 public:
  explicit UpdateRatio(const UpdateRatioOptions& options);

  std::string_view name() const override { return "update_ratio"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;
  void Save(base::ByteWriter* out) const override;
  bool Load(base::ByteReader* in) override;

 private:
  struct State {
    std::vector<stats::RobustBaseline> layers;
    bool per_rate = false;  // What the baselines are made of.
    Discontinuity conditions;
    Condition condition;
    uint32_t run = 0, quiet = 0, elapsed = 0;
    double peak_ratio = 0;
    model::Step last_over = 0;
    uint64_t next_key = 1;
  };
  struct Look {
    uint32_t over = 0;      // Layers that jump.
    uint32_t measured = 0;
    size_t worst = 0;
    double worst_ratio = 0;  // Of those over: largest, in medians.
  };

  Look Follow(std::span<const float> updates, double rate);
  void Tell(const model::Report& report, const Look& look, std::vector<model::Finding>* out);
  void Continue(const model::Report& report, const Look& look, std::vector<model::Finding>* out);
  void Relearn();
  stats::RobustBaseline Fresh() const;
  template <class Archive>
  void Fields(Archive& a);

  UpdateRatioOptions options_;
  State state_;
};

}  // namespace gyrostat::detect
