// OLMo 2's spike score of the loss and of the gradient norm: says when its level is that of a run known to be
// unstable, and when the client's own number is not what its values give.
//
// The level is that of the whole run: a restart keeps the window. The comparison is per attempt, from its first
// report on, and ends at the first gap, because the client starts anew with each attempt.
//
// The definition keeps a spike in the baseline, so that a huge one hides lesser ones while it is in the window of
// 1,000 values; loss_spike and grad_spike say those.
#pragma once

#include <array>

#include "detect/stateful.h"
#include "stats/spike_score.h"

namespace gyrostat::detect {

struct SpikeScoreLevelOptions {
  stats::SpikeScoreOptions score;    // What the client uses too: only equal options can be compared.
  // OLMo 2 §3 reports 0.40 for its unstable and 0.03 for its stable initialisation, and about 0.1 between. Percent.
  double info_percent = 0.1;         // (0, 100].
  double warning_percent = 0.4;      // (0, 100].
  uint32_t evaluated_min = 1000;     // One spike among few steps is no percentage. [1, 1000000].
  uint32_t spikes_min = 4;           // [1, 1000000].
  template <class Archive>
  void Fields(Archive& a) { a(score, info_percent, warning_percent, evaluated_min, spikes_min); }
};

class SpikeScoreLevel : public Stateful<SpikeScoreLevel> {
 public:
  explicit SpikeScoreLevel(const SpikeScoreLevelOptions& options);

  std::string_view name() const override { return "spike_score"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;

 private:
  friend class Stateful<SpikeScoreLevel>;
  static constexpr uint8_t kStateVersion = 1;
  // One of the two scored series.
  struct Series {
    explicit Series(const stats::SpikeScoreOptions& options) : run(options), attempt(options) {}
    stats::SpikeScore run;      // Never restarts: the level.
    stats::SpikeScore attempt;  // What the client should hold.
    std::optional<model::Finding> open;
    std::optional<model::Finding> disagreement;  // Said once per attempt.
    template <class Archive>
    void Fields(Archive& a) { a(run, attempt, open, disagreement); }
  };
  struct State {
    explicit State(const stats::SpikeScoreOptions& options) : series{Series(options), Series(options)} {}
    std::array<Series, 2> series;  // Loss, gradient norm.
    uint64_t sequence = 0;         // Of the last report of this attempt.
    bool comparing = true;         // Gap-free since the attempt's first report.
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) { a(series, sequence, comparing, next_key); }
  };

  void ObserveSeries(size_t which, const model::Report& report, std::vector<model::Finding>* out);
  void Level(size_t which, model::Step step, std::vector<model::Finding>* out);
  void Compare(size_t which, const model::Report& report, std::vector<model::Finding>* out);
  State Fresh() const { return State(options_.score); }

  SpikeScoreLevelOptions options_;
  State state_;
};

}  // namespace gyrostat::detect
