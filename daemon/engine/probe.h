// What the engine counts.
#pragma once

#include "base/probe.h"

namespace gyrostat::engine {

struct Probe {
  base::Counter events_total, reports_total;
  base::Counter reports_repeated_total;    // Seen before: acknowledged, not judged again.
  base::Counter reports_refused_total;     // Wrong shape, foreign attempt.
  base::Counter queue_full_total;
  base::Counter journal_failures_total;    // Entries that could not be made durable.
  base::Counter orders_sent_total;
};

}  // namespace gyrostat::engine
