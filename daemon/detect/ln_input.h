// Post-norm family: the RMS of the sum before the closing norm (`ln_input_ms`) running away.
//
// DeepNet (arXiv 2203.00555 §3): the model update explodes, the inputs of the norms grow far above their usual size,
// and the gradients behind them vanish. The block's output shows nothing, its size is fixed by the norm. Absolute,
// valid from the first report. *Growth*: the largest RMS over layers rises by a factor within 10 reports while the
// warm-up runs (failing runs: 1.5 to 1.75 by step 10 to 20, healthy post-norm below 1.35, healthy DeepNorm at its
// steepest about the same as failing ones: hence information, with the recommendation to stretch the warm-up). *Level*:
// the RMS is many times what the placement starts with, sqrt(ln_input_ms) alpha of model/architecture.h (healthy runs
// end at up to 6 times, dead ones pass 8 to 40).
#pragma once

#include "detect/condition.h"
#include "detect/stateful.h"
#include "detect/warmup_phase.h"
#include "model/architecture.h"

namespace gyrostat::detect {

struct LnInputOptions {
  double growth_ratio = 1.4;     // Within kLnInputSpan reports. > 1.
  uint32_t growth_reports = 2;   // In a row. [1, 1000].
  double level_ratio = 8;        // Times the RMS at initialisation. > 1.
  uint32_t level_reports = 8;    // In a row. [1, 1000].
  template <class Archive>
  void Fields(Archive& a) { a(growth_ratio, growth_reports, level_ratio, level_reports); }
};
inline constexpr size_t kLnInputSpan = 10;

class LnInput : public Stateful<LnInput> {
 public:
  LnInput(const LnInputOptions& options, const model::ModelSpec& spec);

  std::string_view name() const override { return "ln_input"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;

 private:
  friend class Stateful<LnInput>;
  static constexpr uint8_t kStateVersion = 2;
  static constexpr size_t kKept = kLnInputSpan + 3;  // Both ends are medians of 3.
  struct State {
    explicit State(const model::ModelSpec& spec) : warmup(spec) {}
    WarmupPhase warmup;
    std::array<double, kKept> logs{};  // ln of the largest RMS of the newest reports, oldest first.
    uint32_t known = 0;
    Sustained growth, level;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) {
      a(warmup, logs, known, growth, level, next_key);
      if constexpr (Archive::kLoading)
        if (known > kKept) a.Fail();
    }
  };
  State Fresh() const { return State(spec_); }

  LnInputOptions options_;
  model::ModelSpec spec_;
  bool applies_;
  double usual_rms_;  // At initialisation; 0: not known.
  State state_;
};

}  // namespace gyrostat::detect
