// Signals that cannot be right: a broken hook, a wrong declaration, a filter in between. What is judged from such
// signals is judged wrongly, so this is said apart.
//
//   sum          the parts' gradients exceed the global norm: sqrt(sum g_l^2) <= |g| (1 + 3 %), methods.md §9.4
//   clipped      the gradient norm is one number, so it is taken after clipping: bit-equal for 32 reports
//   minus_one    DeepSpeed's -1 stands for a norm that was not made
//   filtered     a NaN in the loss is replaced: gradient not finite, loss 0 or bit-equal to the one before, thrice
//   same_heads   all heads show one maximum: bit-equal over heads for 8 reports, methods.md §9.5
//   stuck_heads  the maxima do not move: bit-equal to the report before for 32 reports
//   triangle     a block's output is not input plus branches: rms(out) within rms(in) +- rms(a) +- rms(m), Minkowski's
//                inequality over tokens and entries; methods.md §9.2
//   placement    the stream contradicts the declared placement: constant over depth (2 %) though declared open, or
//                growing by more than the layers though declared closed; 3 windows of 64 reports, methods.md §9.3
//   absmax       the largest entry is below the RMS: absmax^2 >= ms (1 - 2 %), methods.md §9.6
//   negative     a mean square below 0
//
// The residual identity itself is checked in the client, on one token; norms alone are necessary, not sufficient.
#pragma once

#include "detect/condition.h"
#include "detect/stateful.h"
#include "model/architecture.h"

namespace gyrostat::detect {

struct InstrumentOptions {
  double sum_slack = 0.03;          // Reported numbers are rounded. >= 0.
  double triangle_slack = 0.05;     // >= 0.
  double flat_share = 0.02;         // Coefficient of variation over depth that is constant. > 0.
  uint32_t wrong_reports = 8;       // In a row before anything is said. [1, 1000].
  uint32_t stuck_reports = 32;      // For what only repeats. [1, 1000].
  uint32_t placement_reports = 192; // Three windows of 64. [1, 100000].
  template <class Archive>
  void Fields(Archive& a) {
    a(sum_slack, triangle_slack, flat_share, wrong_reports, stuck_reports, placement_reports);
  }
};

class Instrument : public Stateful<Instrument> {
 public:
  Instrument(const InstrumentOptions& options, const model::ModelSpec& spec);

  std::string_view name() const override { return "instrument"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;

 private:
  friend class Stateful<Instrument>;
  static constexpr uint8_t kStateVersion = 2;
  enum Check : size_t {
    kSum, kClipped, kMinusOne, kFiltered, kSameHeads, kStuckHeads, kTriangle, kPlacement, kAbsmax, kNegative, kChecks,
  };
  // What one check saw in one report.
  struct Doubt {
    bool measured = false;  // False: this report cannot say.
    bool wrong = false;
    model::Signal signal = model::Signal::kNone;
    std::optional<uint32_t> layer;
    double value = 0, expected = 0;
  };
  static constexpr size_t kSampled = 32;  // Heads compared with the report before.
  struct State {
    std::array<Sustained, kChecks> checks;
    double last_grad_norm = 0, last_loss = 0;
    bool has_grad_norm = false, has_loss = false;
    std::array<float, kSampled> last_heads{};
    bool has_heads = false;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) {
      a(checks, last_grad_norm, last_loss, has_grad_norm, has_loss, last_heads, has_heads, next_key);
    }
  };

  Doubt Look(Check check, const model::Report& report) const;
  Doubt LookAtSum(const model::Report& report) const;
  Doubt LookAtNorm(Check check, const model::Report& report) const;
  Doubt LookAtLoss(const model::Report& report) const;
  Doubt LookAtHeads(Check check, const model::Report& report) const;
  Doubt LookAtTriangle(const model::Report& report) const;
  Doubt LookAtPlacement(const model::Report& report) const;
  Doubt LookAtSquares(Check check, const model::Report& report) const;
  std::string Describe(Check check, const Doubt& doubt) const;
  void Remember(const model::Report& report);
  State Fresh() const { return State(); }

  InstrumentOptions options_;
  const model::Architecture& architecture_;
  State state_;
};

}  // namespace gyrostat::detect
