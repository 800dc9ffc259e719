// What the HTTP server counts.
#pragma once

#include "base/probe.h"

namespace gyrostat::web {

struct Probe {
  base::Counter requests_total;            // Answered, whatever the status.
  base::Counter requests_refused_total;    // Wrong method, foreign Host header, or a target nobody has.
  base::Counter connections_dropped_total; // Closed unread: the queue was full.
  base::Counter request_timeouts_total;    // Not complete in time, or longer than allowed.
  base::Counter rebinds_total;             // The port was lost to an error of the system and bound again.
};

}  // namespace gyrostat::web
