// collect: per-head maxima at every step while an episode is open, then as often as the job measured before. It changes
// no weight and needs no approval; it goes out in advise and act where the job and the configuration allow it. Nothing
// is ordered to a job that measures every step anyway.
#pragma once

#include "policy/measure_flow.h"

namespace gyrostat::policy {

// A report, after TakeFindings. Asks for more or for less, when that is not what was asked last.
void Collect(const Desk& desk, const model::Report& report, model::Boundary newest);

}  // namespace gyrostat::policy
