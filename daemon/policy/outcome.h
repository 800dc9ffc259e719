// Did it help? Watches the heads after an intent's first clip took effect, and says so once.
//
// effective     no head stayed above 1.5 tau for more than 3 boundaries in a row. ineffective   one did. harmful
// a maximum that was finite at opening is not any more, or the worst head ends more than four times as high
// as the worst stood at opening. inconclusive  the run or attempt ended before the window was over (the caller says
// that).
//
// A head that crosses 1.5 tau is seen there once more than the loop has delay before the answer can be at the weights:
// where the delay is above two boundaries, as it may be where ranks agree, so many in a row are allowed.
//
// The window starts with the first forward that ran under an applied clip: what a head does while the order is still on
// its way says nothing about the order. That a head far above tau needs several orders of a factor of ten fits into 3.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/intervention.h"
#include "model/report.h"

namespace gyrostat::policy {

struct Verdict {
  model::Outcome outcome = model::Outcome::kInconclusive;
  std::string reason;  // A sentence.
};

class OutcomeWatch {
 public:
  // The first order answers this report.
  void Open(const model::Report& report, uint32_t heads, double tau, uint32_t window_boundaries);
  // Its first clip made this ledger version. Later calls change nothing.
  void Applied(uint64_t ledger_version);
  // A report, in order, and how many boundaries pass from a forward to its clip. The verdict comes once.
  std::optional<Verdict> Observe(const model::Report& report, double delay);

  bool started() const { return since_.has_value(); }
  bool done() const { return done_; }

  template <class Archive>
  void Fields(Archive& a) {
    a(tau_, heads_, window_, opening_, opening_worst_, applied_version_, since_, streaks_, high_last_,
      longest_, longest_head_, done_);
  }

 private:
  std::optional<std::string> Broken(const model::Report& report) const;
  void CountStreaks(std::span<const float> maxima);
  Verdict AtEnd(double delay) const;

  double tau_ = 0;
  uint32_t heads_ = 1;
  uint32_t window_ = 0;
  std::vector<float> opening_;          // Maxima at opening.
  double opening_worst_ = 0;
  std::optional<uint64_t> applied_version_;
  std::optional<model::Boundary> since_;  // The first boundary whose forward ran under a clip.
  std::vector<uint32_t> streaks_;         // Boundaries in a row above 1.5 tau, per head.
  uint32_t high_last_ = 0;                // Boundaries in a row at which the worst head stood far above its opening.
  uint32_t longest_ = 0;
  uint32_t longest_head_ = 0;             // Its index, layer-major.
  bool done_ = false;
};

}  // namespace gyrostat::policy
