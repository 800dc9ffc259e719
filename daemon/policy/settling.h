// What became of orders: told by acks, by the hello of a new stream, or by silence.
#pragma once

#include "policy/clip_state.h"

namespace gyrostat::policy {

void TakeAck(const model::Ack& ack, ClipState* s, PolicyOutput* out);

// Settles what the hello tells, forgets what is over, and sends again what this client does not know and may still
// apply.
void SettleByHello(const model::Hello& hello, ClipState* s, PolicyOutput* out);

// Orders of which no word will come any more count as expired.
void SettleOverdue(model::Boundary newest, ClipState* s, PolicyOutput* out);

}  // namespace gyrostat::policy
