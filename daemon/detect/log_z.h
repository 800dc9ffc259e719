// Says that the output softmax drifts: its mean log partition walks away from zero, or its logits grow out of range.
//
// The softmax does not care about a common offset, so nothing but a z-loss or weight decay holds log Z; once it is
// large, half precision rounds the logits by more than the loss can see. *Drift*: the median of the last 32 |log Z| is
// 5 nats and 8 standard errors above its lowest (stats/climb.h): information. *Level*: |log Z|, or the largest output
// logit, at the size where the compute type's spacing reaches half a nat (128 for bf16, 1024 for fp16): warning while
// it also drifts away, for 16 reports in a row.
//
// Source: arXiv 2309.14322 §3.1.2 (divergence of output logits, late in training; z-loss 1e-4 log^2 Z or weight decay
// cure it, QK-Clip does not); spacing of bf16 is 2^-7 of the binade (methods.md §8.1).
#pragma once

#include <array>

#include "detect/condition.h"
#include "detect/discontinuity.h"
#include "detect/stateful.h"
#include "stats/climb.h"

namespace gyrostat::detect {

struct LogZOptions {
  uint32_t window_steps = 32;    // [8, 1024].
  double drift_nats = 5;         // > 0.
  double deviations = 8;         // [3, 100].
  double level_nats = 0;         // 0: from the compute type. [0, 1e9].
  uint32_t hold_reports = 16;    // In a row. [1, 10000].
  template <class Archive>
  void Fields(Archive& a) {
    a(window_steps, drift_nats, deviations, level_nats, hold_reports);
    if constexpr (Archive::kLoading)
      if (window_steps < 8 || window_steps > 1024) a.Fail();
  }
};

class LogZ : public Stateful<LogZ> {
 public:
  LogZ(const LogZOptions& options, const model::ModelSpec& spec);

  std::string_view name() const override { return "log_z"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;

 private:
  friend class Stateful<LogZ>;
  static constexpr uint8_t kStateVersion = 2;
  // log Z, or the largest output logit.
  struct Series {
    explicit Series(const LogZOptions& options) : climb({.window = options.window_steps}) {}
    stats::Climb climb;  // Of the size.
    Condition condition;
    uint32_t held = 0, high_held = 0;
    model::Step since = 0, last_over = 0;
    template <class Archive>
    void Fields(Archive& a) { a(climb, condition, held, high_held, since, last_over); }
  };
  struct State {
    explicit State(const LogZOptions& options) : series{Series(options), Series(options)} {}
    std::array<Series, 2> series;
    Discontinuity conditions;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) { a(series, conditions, next_key); }
  };

  void ObserveSeries(size_t which, const model::Report& report, std::vector<model::Finding>* out);
  void Tell(size_t which, model::Step step, double value, std::vector<model::Finding>* out);
  State Fresh() const { return State(options_); }

  LogZOptions options_;
  double level_;
  State state_;
};

}  // namespace gyrostat::detect
