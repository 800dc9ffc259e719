// Says that the loss climbs away from its best level and does not return.
//
// Two levels are watched, the median of the last 8 and of the last 32 losses, each against the lowest it has had
// (stats/climb.h). The short one sees a run away within a dozen records, the long one a creep of one batch deviation
// over hundreds. What arrives in one jump and then stays is a *shift*: other data does that too. It is not told for 64
// records (what comes back sooner is a spike's business), is information then, a warning when 200 have not brought it
// back, and never more unless it goes on climbing.
//
// A run that gets worse from its very first report has no level to compare with: four losses in a row of 1.3 times the
// first, within 32 reports of the run's start, are told as information. The first may have been a lucky batch, so
// nothing more is made of it; the levels say the rest.
//
// Formula: excess / (1.2533 sigma / sqrt W) >= limit, and excess >= a share of |lowest|; evidence = sum of
// min(deviations / limit, 4) over the records since, critical from 24 on. Source: methods.md §10.1-10.3; the limits
// are read off the healthy runs of $GYROSTAT_RUNS (largest: 5.9 at W = 32, 6.1 at W = 8).
#pragma once

#include "detect/condition.h"
#include "detect/detector.h"
#include "detect/discontinuity.h"
#include "stats/climb.h"

namespace gyrostat::detect {

struct DivergenceOptions {
  uint32_t short_steps = 8;          // [4, 64].
  double short_deviations = 12;      // [4, 100].
  double short_share = 0.05;         // Of |lowest|. (0, 10].
  uint32_t long_steps = 32;          // [short_steps, 1024].
  double long_deviations = 7;        // [3, 100].
  double long_share = 0.02;          // Of |lowest|. (0, 10].
  double excess_min = 0.02;          // Nats. A loss near zero makes any share absurd. >= 0.
  uint32_t hold_records = 4;         // In a row over a limit before anything is said. [1, 1000].
  double critical_evidence = 24;     // [1, 10000].
  double shift_share = 0.6;          // Of the excess within a few records: a shift, not a climb. (0, 1].
  uint32_t shift_info_records = 64;       // A shift is told when it has lasted so long. [1, 100].
  uint32_t shift_warning_records = 200;   // A shift that has not come back. [1, 100000].
  uint32_t shift_abandon_records = 400;   // Then its level is the usual one. [1, 1000000].
  uint32_t heal_records = 8;         // In a row below half the limits. [1, 1000].
  template <class Archive>
  void Fields(Archive& a) {
    a(short_steps, short_deviations, short_share, long_steps, long_deviations, long_share, excess_min, hold_records,
      critical_evidence, shift_share, shift_info_records, shift_warning_records, shift_abandon_records, heal_records);
    if constexpr (Archive::kLoading)
      if (short_steps < 4 || short_steps > 64 || long_steps < short_steps || long_steps > 1024) a.Fail();
  }
};

class Divergence : public Detector {
 public:
  explicit Divergence(const DivergenceOptions& options);

  std::string_view name() const override { return "divergence"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;
  void Save(base::ByteWriter* out) const override;
  bool Load(base::ByteReader* in) override;

 private:
  struct State {
    explicit State(const DivergenceOptions& options);
    stats::Climb brief, slow;
    Discontinuity conditions;
    std::vector<double> recent;       // The newest losses, oldest first; what a shift is recognised by.
    std::vector<model::Step> steps;   // Their steps.
    model::Step lowest_step = 0;      // Of the last new lowest level.
    uint32_t hits = 0;                // Records in a row over a limit.
    Condition condition;
    bool shift = false;
    double shift_excess = 0;  // As it was right after the jump.
    double peak_excess = 0, evidence = 0;
    uint32_t elapsed = 0, quiet = 0;
    model::Step last_over = 0;
    double first_loss = 0;         // Of the run; 0 once nothing is made of it any more.
    uint32_t first_reports = 0;    // Losses since.
    Sustained start;               // Worse than it.
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) {
      a(brief, slow, conditions, recent, steps, lowest_step, hits, condition, shift, shift_excess, peak_excess,
        evidence, elapsed, quiet, last_over, first_loss, first_reports, start, next_key);
      if constexpr (Archive::kLoading)
        if (recent.size() != steps.size()) a.Fail();
    }
  };

  // How far over its limit each level is: 1 is at the limit, 0 where the share is not reached.
  double OverShort() const;
  double OverLong() const;
  double Excess() const;
  double Lowest() const;
  std::optional<size_t> Jump(double* excess) const;
  void ObserveStart(model::Step step, double loss, std::vector<model::Finding>* out);
  void Learn(model::Step step, double loss);
  void Begin(model::Step step, double loss, std::vector<model::Finding>* out);
  void Continue(model::Step step, double over, std::vector<model::Finding>* out);
  void Escalate(double over, std::vector<model::Finding>* out);
  void Raise(model::Severity severity, const std::string& message, std::vector<model::Finding>* out);
  void Relearn();

  DivergenceOptions options_;
  State state_;
};

}  // namespace gyrostat::detect
