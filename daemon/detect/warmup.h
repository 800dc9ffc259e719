// A warm-up that was too short, or still runs too fast, as the loss shows it. (`grad_profile` and `ln_input` see it 100
// steps earlier in the post-norm family; this one needs nothing but a loss and a learning rate.)
//
// *Plateau*: the warm-up is over and the loss stands still near what is known without reading context (the unigram
// entropy): above half of the loss of a model that knows nothing, ln(vocabulary) or the median loss of its first steps.
// Levels are medians of 32 losses; still means that two of them 64 reports apart differ by less than 2 %. Where
// gradients per layer are reported, the last must be 8 times the first as well. experiments.md §3: collapsed post-norm
// models stand at 0.58 of the start, healthy ones pass 0.5 within 500 steps without standing still. *Ramp*: the loss
// has climbed away from its lowest level while the rate still rises (experiments.md §5, S7b): the peak is too high.
#pragma once

#include "detect/condition.h"
#include "detect/recent_median.h"
#include "detect/stateful.h"
#include "detect/warmup_phase.h"
#include "model/architecture.h"
#include "stats/robust_baseline.h"

namespace gyrostat::detect {

struct WarmupOptions {
  double plateau_share = 0.5;        // Of the loss that knows nothing. (0, 1).
  double still_share = 0.02;         // Two levels that differ by less stand still. (0, 1).
  uint32_t plateau_reports = 32;     // In a row. [1, 10000].
  uint32_t critical_reports = 200;   // Standing still for so long. [plateau_reports, 1000000].
  double ratio = 8;                  // Last over first gradient, where they are reported. > 1.
  double ramp_share = 0.1;           // The loss over its lowest level; healthy runs wander by 0.07. > 0.
  double ramp_nats = 0.2;            // And by at least this. > 0.
  uint32_t ramp_reports = 16;        // In a row. [1, 10000].
  template <class Archive>
  void Fields(Archive& a) {
    a(plateau_share, still_share, plateau_reports, critical_reports, ratio, ramp_share, ramp_nats, ramp_reports);
  }
};

class Warmup : public Stateful<Warmup> {
 public:
  Warmup(const WarmupOptions& options, const model::ModelSpec& spec);

  std::string_view name() const override { return "warmup"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;

 private:
  friend class Stateful<Warmup>;
  static constexpr uint8_t kStateVersion = 2;
  static constexpr size_t kApart = 64;  // Reports between the two levels of a plateau.
  struct State {
    explicit State(const model::ModelSpec& spec);
    WarmupPhase phase;
    stats::RobustBaseline losses;       // The newest 32.
    std::array<double, kApart> levels{};  // Their medians, a ring.
    uint32_t levels_known = 0, levels_next = 0;
    double knows_nothing = 0;           // Loss of a model that does; 0: not known.
    RecentMedian<3> first;              // Losses of the first steps, where the vocabulary is not known.
    bool started = false;               // No first step can come any more.
    double lowest = 0;                  // Level while the rate rose; valid once has_lowest.
    bool has_lowest = false;
    RecentMedian<5> ratios;             // ln of last over first gradient.
    Sustained plateau, ramp;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) {
      a(phase, losses, levels, levels_known, levels_next, knows_nothing, first, started, lowest, has_lowest, ratios,
        plateau, ramp, next_key);
      if constexpr (Archive::kLoading)
        if (levels_known > kApart || levels_next >= kApart) a.Fail();
    }
  };

  void LearnRatio(const model::Report& report);
  void ObservePlateau(double level, double earlier, const Sustained::Context& context);
  void ObserveRamp(double level, const Sustained::Context& context);
  std::optional<model::InterventionKind> Cure() const;
  State Fresh() const { return State(spec_); }

  WarmupOptions options_;
  model::ModelSpec spec_;
  const model::Architecture& architecture_;
  State state_;
};

}  // namespace gyrostat::detect
