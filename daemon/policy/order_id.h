// Names for orders without randomness: a replay of the journal gives the same ones.
#pragma once

#include <cstdint>
#include <string_view>

#include "model/ids.h"

namespace gyrostat::policy {

// A 128-bit hash of run, attempt and the run's order counter. Not a secret: an order is trusted for the stream it comes
// on.
model::OrderId MakeOrderId(std::string_view run, const model::AttemptId& attempt, uint64_t counter);

}  // namespace gyrostat::policy
