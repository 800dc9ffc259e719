// What publishing itself counts.
#pragma once

#include "base/probe.h"

namespace gyrostat::telemetry {

struct Probe {
  base::Counter scrapes_total;
  base::Counter series_dropped_total;  // Left out of a scrape because of a cap; counted once per scrape.
};

}  // namespace gyrostat::telemetry
