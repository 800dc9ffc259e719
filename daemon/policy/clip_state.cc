#include "policy/clip_state.h"

#include <algorithm>

#include "policy/order_id.h"

namespace gyrostat::policy {

bool Terms::automatic() const {
  const auto& kinds = options.automatic;
  return mode == model::Mode::kAct &&
         std::find(kinds.begin(), kinds.end(), model::InterventionKind::kQkClip) != kinds.end();
}

model::OrderId ClipState::NextOrderId() {
  return MakeOrderId(run, job ? job->attempt : model::AttemptId{}, orders_made++);
}

}  // namespace gyrostat::policy
