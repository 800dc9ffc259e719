// Says that a block's gradient norm has become rough from step to step: the earliest sign of a slow post-norm
// divergence, while the loss still falls.
//
// Formula: the standard deviation, over the last 40 steps, of the first differences of ln(layer_grad_norm) divided by
// sqrt 2; the largest over blocks. Each difference counts for at most 2 in size, so that no single bad batch makes it
// rough. Source: experiments.md §5 (over 0.9 at steps 135-174 of runs that fail at 404-528; 54 healthy runs stay below
// 0.9, all but one below 0.6; 1.2 is never crossed). No value for pre-norm failures, and no harm.
#pragma once

#include "detect/condition.h"
#include "detect/detector.h"
#include "detect/discontinuity.h"

namespace gyrostat::detect {

struct GradRoughnessOptions {
  uint32_t window_steps = 40;      // [8, 1024].
  double difference_max = 2;       // A difference counts for no more. > 0.
  double info_roughness = 0.75;    // > 0.
  double warning_roughness = 0.9;  // >= info_roughness.
  double end_roughness = 0.6;      // At or below it a block is smooth again. (0, info_roughness].
  template <class Archive>
  void Fields(Archive& a) {
    a(window_steps, difference_max, info_roughness, warning_roughness, end_roughness);
    if constexpr (Archive::kLoading)
      if (window_steps < 8 || window_steps > 1024) a.Fail();
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
  struct State {
    std::vector<double> previous;     // Per layer: ln of the last norm; kAbsent where the chain is broken.
    std::vector<double> differences;  // Per layer: a ring of window_steps.
    std::vector<uint32_t> count;      // Per layer: differences seen, saturating.
    Condition condition;
    model::Step last_rough = 0;
    Discontinuity conditions;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) {
      a(previous, differences, count, condition, last_rough, conditions, next_key);
      if constexpr (Archive::kLoading)
        if (previous.size() != count.size()) a.Fail();
    }
  };

  void Follow(std::span<const float> norms);
  double Roughness(size_t layer) const;
  void Start(size_t layers);
  void Tell(const model::Report& report, size_t layer, double roughness, std::vector<model::Finding>* out);

  GradRoughnessOptions options_;
  bool post_family_;
  State state_;
};

}  // namespace gyrostat::detect
