// What the HTTP server counts.
#pragma once

#include "base/probe.h"

namespace gyrostat::web {

struct Probe {
  base::Counter requests_total;            // Answered, whatever the status.
  base::Counter requests_refused_total;    // Wrong method, foreign Host header, or a target nobody has.
  base::Counter connections_dropped_total; // Closed unread: the queue was full.
  base::Counter request_timeouts_total;    // Not complete in time, or longer than allowed.
  base::Gauge event_streams_open;          // Browsers that follow a run.
  base::Counter events_sent_total;
  base::Counter event_readers_cut_total;   // They did not take what was sent to them.
  base::Counter rebinds_total;             // The port was lost to an error of the system and bound again.
};

}  // namespace gyrostat::web
