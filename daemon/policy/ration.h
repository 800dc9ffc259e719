// What the intents of all kinds of a run share: their numbers, the budget and the cool-down. Time here is the run's
// own: boundaries counted on over attempts.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "policy/run_policy.h"

namespace gyrostat::policy {

using RunTime = uint64_t;

class Ration {
 public:
  // A number for an intent that opens now, from 1. It counts against the budget where `counted`.
  enum class Weight : uint8_t { kCounted, kFree };
  uint64_t Take(RunTime now, Weight weight);
  uint64_t last() const { return last_; }

  // No intent opens before `until`, for the reason `why`.
  void CoolDown(RunTime until, const std::string& why);
  // Somebody's word or new rules end it.
  void EndCoolDown() { cool_until_ = 0; }

  // Why no intent may open now, a sentence; empty: one may.
  std::string HeldBack(RunTime now, const PolicyOptions& options) const;
  // Only the budget.
  std::string OverBudget(RunTime now, const PolicyOptions& options) const;

  template <class Archive>
  void Fields(Archive& a) { a(opened_at_, last_, cool_until_, why_cool_); }

 private:
  std::deque<RunTime> opened_at_;
  uint64_t last_ = 0;
  RunTime cool_until_ = 0;
  std::string why_cool_;
};

}  // namespace gyrostat::policy
