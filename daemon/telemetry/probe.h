// What publishing itself counts.
#pragma once

#include "base/probe.h"

namespace gyrostat::telemetry {

struct Probe {
  base::Counter scrapes_total;
  base::Counter series_dropped_total;  // Left out of a scrape because of a cap; counted once per scrape.
};

// What remote write counts.
struct RemoteProbe {
  base::Counter samples_total, requests_total, bytes_total;  // Taken by the endpoint.
  base::Counter retries_total;         // Requests sent again.
  base::Counter samples_rejected_total;  // Of requests that the endpoint called no good.
  base::Counter reports_lost_total;    // Dropped or damaged in the history before they were sent.
  base::Counter reports_too_old_total;  // Passed over because of max_age_hours.
  base::Counter reports_untimed_total;  // Stored before times of arrival were kept: passed over.
  base::Counter history_failures_total;  // Reads of the history or of a cursor, and writes of one, that failed.
  base::Gauge lag_milliseconds;        // Since the newest that was sent came, while others of its run wait; 0: none do.
  base::Gauge failing;                 // 1 while the endpoint takes nothing.
};

}  // namespace gyrostat::telemetry
