// Says that the loss, or the global gradient norm, jumped above what it has been, and whether it came back ("healed").
//
// The expected level is the median of the last few values, so that a falling loss or a warm-up is followed within
// steps; what is far from it is judged by the median and MAD of the past distances from that level. While a spike is
// open nothing enters either: a long spike cannot become the new normal before it has been called what it is. The
// gradient norm is judged in its logarithm, the loss as it is (a loss may be negative).
#pragma once

#include "detect/detector.h"
#include "detect/discontinuity.h"
#include "stats/robust_baseline.h"

namespace gyrostat::detect {

struct SpikeOptions {
  model::Signal signal = model::Signal::kLoss;  // kLoss or kGradNorm.
  bool log_domain = false;
  uint32_t window_steps = 256;      // Past distances that make the scale. [32, 4096].
  uint32_t level_steps = 16;        // Past values that make the expected level. [4, 256].
  double enter_sigmas = 7;          // So far above the level begins a spike (more with a short past). [3, 100].
  double exit_sigmas = 4;           // Below this it is back; between the two it is not healed. [1, enter_sigmas].
  double sigma_min = 0;             // The scale is at least this (log domain), or this times the level. >= 0.
  double gross_ratio = 2;           // So many times the level is a spike however wide the scale, and a warning
                                    // however short. > 1.
  uint32_t heal_records = 3;        // In a row below exit_sigmas until it counts as healed. [1, 100].
  uint32_t lasting_records = 3;     // Records above enter_sigmas that make a warning. [1, 1000].
  uint32_t unhealed_warning_records = 20;    // [1, 10000].
  uint32_t unhealed_critical_records = 200;  // [1, 100000].
  uint32_t abandon_records = 400;   // After so many the new level is taken as the normal one: not healed. [1, 1000000].
  template <class Archive>
  void Fields(Archive& a) {
    a(signal, log_domain, window_steps, level_steps, enter_sigmas, exit_sigmas, sigma_min, gross_ratio, heal_records,
      lasting_records, unhealed_warning_records, unhealed_critical_records, abandon_records);
    if constexpr (Archive::kLoading)
      if (window_steps < 32 || window_steps > 4096 || level_steps < 4 || level_steps > 256) a.Fail();
  }
};
SpikeOptions LossSpikeDefaults();
SpikeOptions GradSpikeDefaults();

class Spike : public Detector {
 public:
  explicit Spike(const SpikeOptions& options);

  std::string_view name() const override {
    return options_.signal == model::Signal::kLoss ? "loss_spike" : "grad_spike";
  }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;
  void Save(base::ByteWriter* out) const override;
  bool Load(base::ByteReader* in) override;

 private:
  struct Episode {
    Episode() {}              // Spelled out: clang 14 does not see a defaulted one inside the class.
    model::Finding finding;   // As last said.
    double level = 0;         // Expected value when it began, in the domain of judging.
    double exit = 0;          // Back at or below this, in the domain of judging.
    double enter = 0;
    uint32_t elapsed = 0;     // Reports since it began, this one included.
    uint32_t records = 0;     // Of them above `enter`.
    uint32_t quiet = 0;       // Of them at or below `exit`, in a row until now.
    model::Step last_bad = 0;
    double peak = 0;          // In the signal's unit.
    template <class Archive>
    void Fields(Archive& a) { a(finding, level, exit, enter, elapsed, records, quiet, last_bad, peak); }
  };
  struct State {
    explicit State(const SpikeOptions& options);
    stats::RobustBaseline level, scale;
    Discontinuity conditions;
    bool has_old_level = false;  // After a break: the level before it, until the new one is known.
    double old_level = 0;
    uint64_t next_key = 1;
    std::optional<Episode> open;
    template <class Archive>
    void Fields(Archive& a) { a(level, scale, conditions, has_old_level, old_level, next_key, open); }
  };

  // Where a value is a spike and where it is back, or nothing while too little is known.
  struct Limits {
    double level, enter, exit, sigmas_per_unit;
  };
  std::optional<Limits> LimitsNow() const;
  double Expected() const;
  double AtRatio(double level, double ratio) const;
  double ToUnit(double judged) const;
  double Ratio(double value, double level) const;  // Value over level in the signal's unit; 0 where meaningless.
  void Learn(double judged);
  void Begin(model::Step step, double value, double judged, const Limits& limits, std::vector<model::Finding>* out);
  void Continue(model::Step step, double value, double judged, std::vector<model::Finding>* out);
  void Escalate(std::vector<model::Finding>* out);
  void End(std::optional<bool> healed, const std::string& message, std::vector<model::Finding>* out);
  void Relearn();

  SpikeOptions options_;
  State state_;
};

}  // namespace gyrostat::detect
