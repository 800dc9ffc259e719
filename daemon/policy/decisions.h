// Answers to "shall qk_clip act on this report?", journalled when the answer or its reason changes, not at every step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/intervention.h"

namespace gyrostat::policy {

// Why the answer is what it is. Numbers in the sentence change at every step, this does not.
enum class Why : uint8_t {
  kNone,
  // Yes.
  kOrdered, kProposed, kLocalOn, kLocalOff,
  // No.
  kObserve, kObstacle, kNonFinite, kStale, kDisabled, kFailed, kOverflow, kIdentical, kWaiting, kHeldBack, kRunEnds,
  kLedger, kUnanswered, kDeadBand,
};

class DecisionLog {
 public:
  // Adds the decision to `*out` unless it repeats the last one. A "no" that stays is said again when it concerns at
  // least twice as many heads as when it was said; an obstacle, when its text changes.
  void Say(model::Step step, Why why, std::string reason, uint32_t heads, std::vector<model::Decision>* out);

  // The next answer is said whatever it is: an intent ended, rules changed, another attempt.
  void Forget() { last_ = Why::kNone; }

  template <class Archive>
  void Fields(Archive& a) { a(last_, last_reason_, last_heads_); }

 private:
  Why last_ = Why::kNone;
  std::string last_reason_;
  uint32_t last_heads_ = 0;
};

}  // namespace gyrostat::policy
