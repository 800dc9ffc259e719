// What telling counts, over all webhooks; the log names the one.
#pragma once

#include "base/probe.h"

namespace gyrostat::notify {

struct Probe {
  base::Counter posts_total;      // Messages that a webhook took.
  base::Counter failures_total;   // Requests without a 2xx, the same message again included.
  base::Counter rejected_total;   // Messages given up: the webhook would refuse them again.
  base::Counter dropped_total;    // Notices dropped because a queue was full.
  base::Gauge queue_notices;      // That wait for a webhook, or for its answer.
  base::Gauge webhooks_failing;   // Webhooks whose last request failed.
};

}  // namespace gyrostat::notify
