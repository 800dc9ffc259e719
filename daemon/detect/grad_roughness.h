// Says that a block's gradient norm has become rough from step to step: the earliest sign of a slow post-norm
// divergence, while the loss still falls.
//
// Formula: the standard deviation, over the last 40 steps, of the first differences of ln(layer_grad_norm) divided by
// sqrt 2; the largest over blocks. Each difference counts for at most 2 in size, so that no single bad batch makes it
// rough. Source: experiments.md §5 (over 0.9 at steps 135-174 of runs that fail at 404-528; 54 healthy runs stay below
// 0.9, all but one below 0.6; 1.2 is never crossed). No value for pre-norm failures, and no harm.
//
// The global norm is followed as well (stats/roughness.h, trimmed), for what comes before a burst of spikes: the norm
// begins to jump from step to step while nothing in it is a spike yet (OLMo 2 §3: loss spikes were often preceded by
// more frequent gradient-norm spikes). Over 40 steps 2.5 times its lowest over 128, and 0.3 at least: F = 6.25 of some
// 27 and 85 degrees of freedom, p = 1e-10 for Gaussian noise. Or 0.6 over 40 steps, or 0.7 over 16, whatever it was:
// these are there from the start. Largest of 54 healthy runs: 2.3 times; 0.36; 0.50.
#pragma once

#include "detect/condition.h"
#include "detect/detector.h"
#include "detect/discontinuity.h"
#include "stats/roughness.h"

namespace gyrostat::detect {

struct GradRoughnessOptions {
  uint32_t window_steps = 40;      // [8, 1024].
  double difference_max = 2;       // A difference counts for no more. > 0.
  double info_roughness = 0.75;    // > 0.
  double warning_roughness = 0.9;  // >= info_roughness.
  double end_roughness = 0.6;      // At or below it a block is smooth again. (0, info_roughness].
  double total_ratio = 2.5;        // Of the global norm: times its lowest. > 1.
  double total_roughness_min = 0.3;  // Below it no ratio counts. > 0.
  double total_roughness = 0.6;    // Over window_steps, whatever it was before. > 0.
  double total_roughness_short = 0.7;  // Over total_short_steps. > 0.
  uint32_t total_short_steps = 16;     // [8, window_steps].
  uint32_t total_long_steps = 128;     // What the lowest is taken of. [window_steps, 4096].
  template <class Archive>
  void Fields(Archive& a) {
    a(window_steps, difference_max, info_roughness, warning_roughness, end_roughness, total_ratio, total_roughness_min,
      total_roughness, total_roughness_short, total_short_steps, total_long_steps);
    if constexpr (Archive::kLoading)
      if (window_steps < 8 || window_steps > 1024 || total_short_steps < 8 || total_short_steps > window_steps ||
          total_long_steps < window_steps || total_long_steps > 4096)
        a.Fail();
  }
};

class GradRoughness : public Detector {
 public:
  GradRoughness(const GradRoughnessOptions& options, const model::ModelSpec& spec);

  std::string_view name() const override { return "grad_roughness"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;
  void Save(base::ByteWriter* out) const override;
  bool Load(base::ByteReader* in) override;

 private:
  // The global norm.
  struct Total {
    explicit Total(uint32_t window) : roughness(window) {}
    stats::Roughness roughness;
    double lowest = 0;  // Over total_long_steps; 0: not known.
    Condition condition;
    model::Step last_rough = 0;
    template <class Archive>
    void Fields(Archive& a) { a(roughness, lowest, condition, last_rough); }
  };
  struct State {
    explicit State(const GradRoughnessOptions& options) : total(options.total_long_steps) {}
    std::vector<double> previous;     // Per layer: ln of the last norm; kAbsent where the chain is broken.
    std::vector<double> differences;  // Per layer: a ring of window_steps.
    std::vector<uint32_t> count;      // Per layer: differences seen, saturating.
    Condition condition;
    model::Step last_rough = 0;
    Discontinuity conditions;
    Total total;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) {
      a(previous, differences, count, condition, last_rough, conditions, total, next_key);
      if constexpr (Archive::kLoading)
        if (previous.size() != count.size()) a.Fail();
    }
  };

  void ObserveLayers(const model::Report& report, std::vector<model::Finding>* out);
  void ObserveTotal(const model::Report& report, std::vector<model::Finding>* out);
  void Follow(std::span<const float> norms);
  double Roughness(size_t layer) const;
  void Start(size_t layers);
  void Tell(const model::Report& report, size_t layer, double roughness, std::vector<model::Finding>* out);

  GradRoughnessOptions options_;
  bool post_family_;
  State state_;
};

}  // namespace gyrostat::detect
