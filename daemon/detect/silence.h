// Says that a live run has stopped reporting: longer than k times its median step time. Reads times it is given,
// never a clock.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/archive.h"
#include "model/finding.h"

namespace gyrostat::detect {

struct SilenceOptions {
  double step_times = 20;         // Silent after this many median step times ... [2, 10000].
  int64_t silent_after_ms_min = 30000;   // ... but never sooner than this. [1000, 3600000].
  int64_t silent_after_ms_max = 3600000; // And at the latest after this. [1000, 86400000].
  template <class Archive>
  void Fields(Archive& a) { a(step_times, silent_after_ms_min, silent_after_ms_max); }
};

// Pure; not thread-safe. Times are milliseconds of any one clock that does not go back.
class Silence {
 public:
  explicit Silence(SilenceOptions options) : options_(options) {}

  // A report arrived. Returns the end of the finding if one was open.
  std::optional<model::Finding> OnReport(model::Step step, int64_t now_ms);
  // Time passes. Returns the finding once when the wait has become too long; `value` and `expected` are seconds.
  std::optional<model::Finding> OnTick(int64_t now_ms);
  // The job said good-bye: no finding until the next report.
  std::optional<model::Finding> OnBye(int64_t now_ms);

  bool silent() const { return open_.has_value(); }
  // The wait after which the run counts as silent, by what is known now.
  int64_t SilentAfterMs() const;

  template <class Archive>
  void Fields(Archive& a) {
    a(intervals_ms_, next_, burst_, last_ms_, last_step_, watching_, open_, next_key_);
    if constexpr (Archive::kLoading)
      if (intervals_ms_.size() > kIntervalsMax || next_ >= kIntervalsMax) a.Fail();
  }

 private:
  static constexpr uint32_t kIntervalsMax = 64;

  void Learn(int64_t interval_ms);
  std::optional<model::Finding> End(model::Step step, int64_t now_ms);

  SilenceOptions options_;
  std::vector<int64_t> intervals_ms_;  // Ring of the last kIntervalsMax intervals between reports.
  uint32_t next_ = 0;
  uint32_t burst_ = 0;  // Intervals in a row too short to be steps: reports that were held back and came at once.
  int64_t last_ms_ = 0;
  model::Step last_step_ = 0;
  bool watching_ = false;
  std::optional<model::Finding> open_;
  uint64_t next_key_ = 1;
};

}  // namespace gyrostat::detect
