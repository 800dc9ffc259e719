// How intents begin, are judged and end; how epochs and attempts end.
#pragma once

#include <string>

#include "policy/clip_state.h"

namespace gyrostat::policy {

// Puts an intervention's whole new state into the output, once per call of the policy.
void Tell(const model::Intervention& view, PolicyOutput* out);

// Opens an intent on `report`, with a sentence that says why.
Intent& OpenIntent(const Terms& terms, const model::Report& report, model::InterventionState state, std::string opening,
                   ClipState* s, PolicyOutput* out);

// One more order (or local clip) under the intent, on `report`. Its outcome is measured against what the first showed.
void CountOrder(const Terms& terms, const model::Report& report, Intent* intent, ClipState* s);

// Ends the open intent in `state` with a sentence; no other opens for `pause` boundaries. One that has applied orders
// is judged instead, inconclusive unless its outcome is known.
void EndIntent(model::InterventionState state, const std::string& sentence, uint64_t pause,
               const std::string& why_pause, ClipState* s, PolicyOutput* out);

// Reads the outcome of the open intent once its window is over; failures may disable the kind.
void JudgeIntent(const Terms& terms, const model::Report& report, ClipState* s, PolicyOutput* out);

// Ends the open intent when nothing was needed for long enough.
void CloseIfQuiet(const Terms& terms, ClipState* s, PolicyOutput* out);

// The mode or the options changed: proposals and orders that they do not allow stop. `why`: "mode is observe now (by
// kim)".
void FollowTerms(const Terms& terms, const std::string& why, ClipState* s, PolicyOutput* out);

// All orders and bases die: the attempt ended, or the weights got another history. `sentence` ends the open intent.
void EndHistory(const std::string& sentence, ClipState* s, PolicyOutput* out);

// After every change of the mirror: is some head clipped so much that the learning rate must be the cause?
void WatchTugOfWar(ClipState* s, PolicyOutput* out);

}  // namespace gyrostat::policy
