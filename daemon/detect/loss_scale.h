// Says that the dynamic loss scale of an fp16 run collapses: gradients overflow at every scale.
//
// (i) The scale is at 1 or below and gradients still overflow, or it was cut in 20 reports in a row: certain
// divergence, critical. (ii) More than 3 net halvings within 100 steps: warning, and critical where that ends at 1 or
// below.
// (iii) The median of 256 log2(scale) has fallen twice in a row, by 1 or more each time: information, as the fall is
// slow. The search at the start (a scale far too large is cut until it fits) is none of these: (ii) and (iii) begin
// once the scale has grown, or stood for 50 reports.
//
// A steady rhythm of one cut and one growth is how a healthy scaler works: only the net fall counts, and steps, not
// reports: a log of every 200th step tells nothing of 100. A scale below 1 alone means little (fairseq goes to 1e-4).
// bf16 has no loss scale; nothing is said then, which does not mean that it is well. Source: methods.md §8.3; corpus
// labels A09, A28.
#pragma once

#include "detect/condition.h"
#include "detect/stateful.h"
#include "stats/robust_baseline.h"

namespace gyrostat::detect {

struct LossScaleOptions {
  double scale_min = 1;             // Megatron-LM's smallest; at or below it nothing is left to cut. > 0.
  uint32_t cuts_in_a_row = 20;      // [2, 1000].
  uint32_t window_steps = 100;      // For the halvings. [8, 1024].
  double halvings = 3;              // More than so many, net. [1, 64].
  uint32_t settled_reports = 50;    // Without a cut: the search at the start is over. [1, 100000].
  uint32_t slope_reports = 256;     // [32, 4096].
  template <class Archive>
  void Fields(Archive& a) {
    a(scale_min, cuts_in_a_row, window_steps, halvings, settled_reports, slope_reports);
    if constexpr (Archive::kLoading)
      if (window_steps < 8 || window_steps > 1024 || slope_reports < 32 || slope_reports > 4096) a.Fail();
  }
};

class LossScale : public Stateful<LossScale> {
 public:
  explicit LossScale(const LossScaleOptions& options);

  std::string_view name() const override { return "loss_scale"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;

 private:
  friend class Stateful<LossScale>;
  static constexpr uint8_t kStateVersion = 1;
  struct State {
    explicit State(const LossScaleOptions& options);
    std::vector<double> logs;        // log2 of the scales of the last window_steps steps, oldest first.
    std::vector<model::Step> steps;  // Their steps.
    double last = 0;                 // log2 of the last scale.
    bool has_last = false, settled = false, grew = false;
    uint32_t since_cut = 0, cuts_in_a_row = 0;
    uint32_t overflows = 0;          // Reports in a row with a gradient norm that overflowed.
    stats::RobustBaseline window;    // log2 of the current window of slope_reports.
    std::vector<double> medians;     // Of the windows before it: at most 2.
    Condition collapse, slope;
    model::Step last_cut = 0;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) {
      a(logs, steps, last, has_last, settled, grew, since_cut, cuts_in_a_row, overflows, window, medians, collapse,
        slope, last_cut, next_key);
      if constexpr (Archive::kLoading)
        if (logs.size() != steps.size()) a.Fail();
    }
  };

  void Learn(model::Step step, double log2_scale);
  bool AtTheEnd(double scale) const;
  double NetFall() const;  // Halvings from the highest of the window to now.
  void ObserveCollapse(model::Step step, double scale, std::vector<model::Finding>* out);
  void ObserveSlope(model::Step step, double scale, std::vector<model::Finding>* out);
  State Fresh() const { return State(options_); }
  bool Fits() const override;

  LossScaleOptions options_;
  State state_;
};

}  // namespace gyrostat::detect
