// From a report to orders: shall qk_clip act on it, and if so, on which heads by how much?
#pragma once

#include "policy/clip_state.h"

namespace gyrostat::policy {

// Answers the report: a decision where the answer changed, perhaps a proposal, perhaps an order. `newest` is the
// furthest boundary that the attempt is known to have measured.
void AnswerReport(const Terms& terms, const model::Report& report, model::Boundary newest, ClipState* s,
                  PolicyOutput* out);

}  // namespace gyrostat::policy
