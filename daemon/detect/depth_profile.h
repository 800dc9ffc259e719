// How hidden states grow over depth: constant, linear, exponential or logarithmic, against what the declared placement
// predicts (model/architecture.h).
//
// ln of `hidden_ms` is averaged per layer over 32 reports, and each such window is fitted (stats/depth_fit.h,
// methods.md §5.4: 2-parameter least squares in ln s; D = (n/2) ln(RSS_exp/RSS_lin) beyond 3 nats decides). What is
// said needs three windows in a row. Post-norm family: any trend is anomalous except through gains. Peri, reordered,
// LayerNorm scaling: exponential growth is. Pre-norm, mix: exponential is what training does (ProRes 2603.05369 §5.1,
// Peri-LN 2502.02732), so only its increase counts. Silent until the warm-up is over, and below 8 values, where the
// laws cannot be told apart.
#pragma once

#include "detect/condition.h"
#include "detect/stateful.h"
#include "detect/warmup_phase.h"
#include "model/architecture.h"
#include "stats/depth_fit.h"

namespace gyrostat::detect {

struct DepthProfileOptions {
  uint32_t window_reports = 32;   // [8, 1024].
  uint32_t hold_windows = 3;      // In a row. [1, 100].
  double decided_nats = 3;        // |D| that decides linear against exponential. > 0.
  double flat_info_ratio = 4;     // Post-norm family: end to end in the mean square. > 1.
  double info_ratio = 1000;       // Others: an anomalous exponential from end to end that is said. > 1.
  double warning_ratio = 100000;  // And that is a warning; post-norm family from its square root on. > 1.
  double rise_info = 0.05;        // Pre-norm: increase of nats per layer within kRiseWindows windows. > 0.
  double rise_warning = 0.15;     // > rise_info.
  template <class Archive>
  void Fields(Archive& a) {
    a(window_reports, hold_windows, decided_nats, flat_info_ratio, info_ratio, warning_ratio, rise_info, rise_warning);
    if constexpr (Archive::kLoading)
      if (window_reports < 1 || window_reports > 1024) a.Fail();
  }
};

class DepthProfile : public Stateful<DepthProfile> {
 public:
  DepthProfile(const DepthProfileOptions& options, const model::ModelSpec& spec);

  std::string_view name() const override { return "depth_profile"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;

 private:
  friend class Stateful<DepthProfile>;
  static constexpr uint8_t kStateVersion = 2;
  static constexpr size_t kRiseWindows = 8;
  struct State {
    explicit State(const model::ModelSpec& spec) : warmup(spec) {}
    WarmupPhase warmup;
    std::vector<double> sums;      // Of ln hidden_ms, per value of the array.
    std::vector<uint32_t> counts;  // Reports in each.
    uint32_t reports = 0;
    std::array<double, kRiseWindows> growth{};  // c of the newest windows, oldest first.
    uint32_t windows = 0;                       // How many of them there are.
    Sustained profile;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) {
      a(warmup, sums, counts, reports, growth, windows, profile, next_key);
      if constexpr (Archive::kLoading)
        if (sums.size() != counts.size() || sums.size() > model::kLayersMax + 1 || windows > kRiseWindows) a.Fail();
    }
  };
  struct Verdict {
    std::optional<model::Severity> severity;
    const char* why = "";
  };

  void Judge(model::Step step, std::vector<model::Finding>* out);
  Verdict VerdictOf(const stats::DepthFit& fit, double layers) const;
  State Fresh() const { return State(spec_); }

  DepthProfileOptions options_;
  model::ModelSpec spec_;
  const model::Architecture& architecture_;
  State state_;
};

}  // namespace gyrostat::detect
