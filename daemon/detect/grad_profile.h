// How gradient norms run over depth.
//
// Post-norm family: the ratio of the last block's gradient to the first's. When the warm-up is too fast all tokens
// become equal and the first block's gradient vanishes, 100 steps before the loss shows anything (it looks better at
// first).
// Absolute, valid from the first report: the median of the last 5 ratios against limits that grow with depth, because
// healthy deep stacks pass through a milder version. *Low* during the warm-up is information that recommends to stretch
// it; *high* is a warning; high for long is a dead model. Source: Xiong et al. 2020 (arXiv 2002.04745) §3.3; DeepNet
// (arXiv 2203.00555) §3; limits from experiments.md §3 and §7 (healthy peaks: 5-16 at 4 layers, 15-21 at 6, 54-89 at
// 12; collapsed: hundreds to tens of thousands).
//
// Other placements: the invariant D_l = |g_l| sqrt(s_(l+1)), s the mean square of the stream, is the same in each block
// at initialisation (methods.md §5.3; LayerNorm scaling: times sqrt(l)). Its slope over depth is compared with the
// run's own past once the warm-up is over. Information; a warning only for a change by a factor of 100 from end to end.
#pragma once

#include "detect/condition.h"
#include "detect/recent_median.h"
#include "detect/stateful.h"
#include "detect/warmup_phase.h"
#include "model/architecture.h"
#include "stats/robust_baseline.h"

namespace gyrostat::detect {

struct GradProfileOptions {
  double low_ratio = 8;             // Low is this, or low_per_layer times the layers if that is more. > 1.
  double low_per_layer = 2;         // > 0.
  double high_per_layer = 12;       // High is this times the layers. > low_per_layer.
  uint32_t high_reports = 5;        // In a row above high: a warning. [1, 1000].
  uint32_t dead_reports = 60;       // In a row above high: critical. Healthy runs: 1. [1, 100000].
  double slope_min = 0.05;          // Change of ln D per layer that counts. > 0.
  double info_ratio = 4;            // Change of D from end to end that is said. > 1.
  double warning_ratio = 100;       // And that is a warning. > info_ratio.
  uint32_t slope_reports = 32;      // In a row. [1, 10000].
  template <class Archive>
  void Fields(Archive& a) {
    a(low_ratio, low_per_layer, high_per_layer, high_reports, dead_reports, slope_min, info_ratio, warning_ratio,
      slope_reports);
  }
};

class GradProfile : public Stateful<GradProfile> {
 public:
  GradProfile(const GradProfileOptions& options, const model::ModelSpec& spec);

  std::string_view name() const override { return "grad_profile"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;

 private:
  friend class Stateful<GradProfile>;
  static constexpr uint8_t kStateVersion = 2;
  static constexpr uint32_t kMedianOf = 5;
  struct State {
    explicit State(const model::ModelSpec& spec);
    WarmupPhase warmup;
    RecentMedian<kMedianOf> ratios;          // ln(last / first).
    uint32_t high_run = 0;                   // Reports in a row above high.
    stats::RobustBaseline slopes;
    double slope_now = 0;                    // Smoothed.
    bool has_slope = false;
    Sustained collapse, drift;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) {
      a(warmup, ratios, high_run, slopes, slope_now, has_slope, collapse, drift, next_key);
    }
  };

  void ObserveCollapse(const model::Report& report, std::span<const float> norms, std::vector<model::Finding>* out);
  void FillCollapse(double ratio, std::span<const float> norms, model::Finding* finding) const;
  void ObserveDrift(const model::Report& report, std::span<const float> norms, std::vector<model::Finding>* out);
  std::optional<double> SlopeOf(const model::Report& report, std::span<const float> norms) const;
  State Fresh() const { return State(spec_); }

  GradProfileOptions options_;
  model::ModelSpec spec_;
  const model::Architecture& architecture_;
  bool post_family_;  // Its post-norm layers can collapse.
  State state_;
};

}  // namespace gyrostat::detect
