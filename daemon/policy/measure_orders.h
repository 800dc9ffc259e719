// What became of the orders of measures: told by acks, by the hello of a new stream, or by silence.
#pragma once

#include "policy/measure_flow.h"

namespace gyrostat::policy {

// False: the ack is of no measure's order.
bool TakeMeasureAck(const Desk& desk, const model::Ack& ack);

// Settles what the hello tells, and sends again under its id what this client does not know and may still apply. The
// mirror stands at the hello's registers already.
void SettleMeasuresByHello(const Desk& desk, const model::Hello& hello);

// Orders of which no word will come any more count as expired.
void SettleOverdueMeasures(const Desk& desk, model::Boundary newest);

}  // namespace gyrostat::policy
