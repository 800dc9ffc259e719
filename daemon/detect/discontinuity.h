// Sees in the reports themselves that the run's conditions jumped: the learning rate, or the tokens of a step.
//
// Loss and gradient norm settle at another level after such a jump, and what they were before says nothing about what
// they should be: relative baselines start again (methods.md §10.3). A warm-up, a decay and a first step are no jump:
// the rate must change by more than `rate_ratio` in one report, and by a twentieth of the highest it has had (the last
// steps of a linear decay halve it), after `settled_reports` without a jump.
//
// Pure. Not thread-safe. Allocates nothing.
#pragma once

#include "model/report.h"

namespace gyrostat::detect {

struct DiscontinuityOptions {
  double rate_ratio = 1.5;        // Either way. > 1. Warm-ups do less after the first few steps.
  double tokens_ratio = 1.5;      // Either way; packed sequences vary by less. > 1.
  uint32_t settled_reports = 32;  // Between two jumps: a rate that flickers must not keep baselines from growing.
};

class Discontinuity {
 public:
  explicit Discontinuity(DiscontinuityOptions options = {}) : options_(options) {}

  // True when this report is the first after a jump.
  bool Observe(const model::Report& report);
  // Whether this report took the last jump back before anything settled: it was a glitch, and what was usual is so
  // again.
  bool undone() const { return rate_.undone || tokens_.undone; }
  // A restart: the next value is compared with nothing.
  void Clear();

  template <class Archive>
  void Fields(Archive& a) { a(rate_, tokens_); }

 private:
  // A positive number that usually stays or moves slowly.
  struct Setting {
    double last = 0;       // 0: none yet.
    double highest = 0;
    uint32_t settled = 0;  // Reports since it last jumped, or since the first.
    double before = 0;     // The last jump that counted.
    bool undone = false;   // By the last value.
    bool Jumps(double value, double ratio, uint32_t settled_min);
    template <class Archive>
    void Fields(Archive& a) { a(last, highest, settled, before, undone); }
  };

  DiscontinuityOptions options_;
  Setting rate_, tokens_;
};

}  // namespace gyrostat::detect
