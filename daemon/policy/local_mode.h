// Where clipping is local: the client is told tau once and clips by itself at each boundary; what it did comes with its
// reports. Whether it may is decided as for remote orders, only the telling differs.
#pragma once

#include "policy/clip_state.h"

namespace gyrostat::policy {

// Tells the client to clip at tau, or to stop, when that is not what it was told last. Nothing while no attempt is
// live.
void Arm(const Terms& terms, const std::string& why, ClipState* s, PolicyOutput* out);

// A report came in: an order that nobody answered for long is sent again under its id.
void RemindLocal(ClipState* s, PolicyOutput* out);

// The stream is new: sends again what this client does not know of.
void ResendLocal(const model::Hello& hello, ClipState* s, PolicyOutput* out);

// The client's answer to the order that told it. False: the ack is of another order.
bool TakeLocalAck(const model::Ack& ack, ClipState* s, PolicyOutput* out);

// What the client applied by itself: moves the mirror, opens or continues the intent.
void TakeLocalClips(const Terms& terms, const model::Report& report, ClipState* s, PolicyOutput* out);

}  // namespace gyrostat::policy
