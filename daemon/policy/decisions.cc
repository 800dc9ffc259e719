#include "policy/decisions.h"

#include <utility>

namespace gyrostat::policy {
namespace {

bool IsYes(Why why) { return why >= Why::kOrdered && why <= Why::kLocalOff; }

// Their sentences have no numbers that change by themselves.
bool HasFixedText(Why why) { return why == Why::kObstacle || why == Why::kFailed || why == Why::kLedger; }

}  // namespace

void DecisionLog::Say(model::Step step, Why why, std::string reason, uint32_t heads,
                      std::vector<model::Decision>* out) {
  const bool same = why == last_ && !(HasFixedText(why) && reason != last_reason_);
  const bool grew = !IsYes(why) && last_heads_ > 0 && heads >= uint64_t{2} * last_heads_;
  if (same && !grew) return;
  last_ = why;
  last_heads_ = heads;
  last_reason_ = reason;
  out->push_back(
      {.step = step, .kind = model::InterventionKind::kQkClip, .acted = IsYes(why), .reason = std::move(reason)});
}

}  // namespace gyrostat::policy
