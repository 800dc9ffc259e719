// Says that a layer's gradients have sunk to Adam's epsilon, where its updates shrink although nothing is wrong.
//
// Absolute: valid from the first report. RMS(g) = layer_grad_norm / sqrt(parameters of the layer); Adam multiplies the
// update by 1 / (1 + eps / RMS): 0.9 at RMS = 9 eps, 0.5 at eps. Information from 9 eps on, warning from eps on, for 64
// reports in a row; over at twice the line that was crossed.
//
// Silent unless the optimizer is of Adam's kind and the width is known: a transformer block has about 12 hidden^2
// parameters (attention 4, MLP 8, also as a gated one of 8/3), a wrong guess by 2 moves the line by 1.4. Epsilon is
// not reported, 1e-8 is what frameworks default to. Source: arXiv 2309.14322 §3.4; methods.md §6.
#pragma once

#include "detect/condition.h"
#include "detect/stateful.h"

namespace gyrostat::detect {

struct AdamEpsOptions {
  double eps = 1e-8;               // > 0.
  double layer_parameters = 0;     // 0: 12 hidden^2. [0, 1e15].
  double info_ratio = 9;           // RMS(g) / eps. > 0.
  double warning_ratio = 1;        // (0, info_ratio].
  uint32_t hold_reports = 64;      // In a row. [1, 100000].
  template <class Archive>
  void Fields(Archive& a) { a(eps, layer_parameters, info_ratio, warning_ratio, hold_reports); }
};

class AdamEps : public Stateful<AdamEps> {
 public:
  AdamEps(const AdamEpsOptions& options, const model::ModelSpec& spec);

  std::string_view name() const override { return "adam_eps"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;

 private:
  friend class Stateful<AdamEps>;
  static constexpr uint8_t kStateVersion = 1;
  struct Layer {
    uint32_t low = 0, very_low = 0;  // Reports in a row below info_ratio, warning_ratio.
    template <class Archive>
    void Fields(Archive& a) { a(low, very_low); }
  };
  struct State {
    std::vector<Layer> layers;
    Condition condition;
    model::Step last_low = 0;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) { a(layers, condition, last_low, next_key); }
  };

  void Tell(model::Step step, size_t smallest, double ratio, std::vector<model::Finding>* out);
  State Fresh() const { return State(); }

  AdamEpsOptions options_;
  double root_parameters_;  // 0: nothing can be said.
  State state_;
};

}  // namespace gyrostat::detect
