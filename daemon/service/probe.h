// What the service itself counts.
#pragma once

#include "base/probe.h"

namespace gyrostat::service {

struct Probe {
  base::Counter reloads_total, reload_failures_total;
  base::Gauge last_reload_successful;  // 1, or 0 while the file on disk is not what is in use because of a mistake in it.
};

}  // namespace gyrostat::service
