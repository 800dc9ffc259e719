// What the loss, or the gradient norm, usually is: from where on a value is a spike, and where it is back.
//
// The expected level is the median of the last few values, so that a falling loss or a warm-up is followed within
// steps; the scale is the MAD of the past distances from it. Both are of ln(value): the noise of small batches is
// multiplicative, and a loss that varies twofold from batch to batch would have spikes all day by its plain deviation.
// A loss that is not positive is judged as it is, once one in sixteen of the last values was none.
//
// Until the scale is known (`level_steps` + 32 values) a deviation means little. A value is then a spike when it is
// `gross_ratio` times the median of the last `level_steps`, above all of them, and 3 deviations from it where there
// are 8; it is `certain` when it is also beyond the
// Gaussian prediction limit of median and MAD for so few values (p = 1e-4). After a restart the level and the scale of
// before stand in until the new ones are known. No training has a gradient norm of 1e12, whatever it was before: the
// largest healthy one known is 5e4, times 2^24, the largest loss scale in use.
//
// Sources: methods.md §10.1 (log domain, median and MAD), §10.3 (limits for few values; ours are for a MAD, which
// knows less than a standard deviation: integrated numerically over the sampling distribution of both).
//
// Pure; same values, same bits, also across save and load. Not thread-safe. Learning allocates nothing.
#pragma once

#include <optional>

#include "model/signal.h"
#include "stats/robust_baseline.h"

namespace gyrostat::detect {

struct SpikeOptions {
  model::Signal signal = model::Signal::kLoss;  // kLoss or kGradNorm.
  uint32_t window_steps = 256;      // Past distances that make the scale. [32, 4096].
  uint32_t level_steps = 16;        // Past values that make the expected level. [4, 256].
  double enter_sigmas = 7;          // So far above the level begins a spike (more with a short past). [3, 100].
  double exit_sigmas = 4;           // Below this it is back; between the two it is not healed. [1, enter_sigmas].
  double sigma_min = 0;             // The scale is at least this share of the level. >= 0.
  double gross_ratio = 2;           // A spike of so many times the level is a warning however short. > 1.
  uint32_t heal_records = 3;        // In a row below exit_sigmas until it counts as healed. [1, 100].
  uint32_t lasting_records = 3;     // Records above enter_sigmas that make a warning. [1, 1000].
  uint32_t unhealed_warning_records = 20;    // [1, 10000].
  uint32_t unhealed_critical_records = 200;  // [1, 100000].
  uint32_t abandon_records = 400;   // After so many the new level is taken as the normal one: not healed. [1, 1000000].
  template <class Archive>
  void Fields(Archive& a) {
    a(signal, window_steps, level_steps, enter_sigmas, exit_sigmas, sigma_min, gross_ratio, heal_records,
      lasting_records, unhealed_warning_records, unhealed_critical_records, abandon_records);
    if constexpr (Archive::kLoading)
      if (window_steps < 32 || window_steps > 4096 || level_steps < 4 || level_steps > 256) a.Fail();
  }
};
SpikeOptions LossSpikeDefaults();
SpikeOptions GradSpikeDefaults();

// Where a value is a spike and where it is back, in the domain of judging.
struct SpikeLimits {
  enum class Basis : uint8_t { kScale, kOldScale, kFirstReports, kAbsolute };
  double level = 0, enter = 0, exit = 0;
  double certain = 0;  // Above this it is no chance: `enter`, but for kFirstReports.
  double sigma = 0;    // 0: not known.
  bool log = true;     // The domain: ln(value), or the value.
  Basis basis = Basis::kScale;
  template <class Archive>
  void Fields(Archive& a) { a(level, enter, exit, certain, sigma, log, basis); }

  double Judged(double value) const;   // -infinity where ln has no value: that is no spike.
  double ToUnit(double judged) const;
  double Expected() const { return ToUnit(level); }  // In the signal's unit.
};

class SpikeLevel {
 public:
  explicit SpikeLevel(const SpikeOptions& options);

  // What `value` is judged by; nothing while too little is known. `value` is finite.
  std::optional<SpikeLimits> LimitsFor(double value) const;
  void Learn(double value);  // Finite, and no spike.
  // What is known becomes the old level, which is judged by until the new one is known.
  void Relearn();
  // What changed has changed back: the old level and scale are as good as they were.
  void TrustOld() { old_trusted_ = true; }
  void Forget();  // Without an old level.

  template <class Archive>
  void Fields(Archive& a) { a(log_, linear_, old_, old_trusted_, share_not_positive_); }

 private:
  struct Domain {
    explicit Domain(const SpikeOptions& options);
    stats::RobustBaseline level, scale;
    template <class Archive>
    void Fields(Archive& a) { a(level, scale); }

    bool known() const { return scale.count() >= stats::kBaselineCountMin; }
    double Expected() const;
  };

  bool JudgesLog() const;
  SpikeLimits ByScale(const Domain& domain, bool log) const;
  SpikeLimits ByOldScale() const;
  SpikeLimits ByFirstReports() const;
  void LearnIn(double judged, bool log, Domain* domain);

  SpikeOptions options_;
  Domain log_, linear_;
  std::optional<SpikeLimits> old_;
  bool old_trusted_ = false;
  double share_not_positive_ = 0;  // Of the last values, exponentially forgotten.
};

}  // namespace gyrostat::detect
