// What the service itself counts.
#pragma once

#include "base/probe.h"

namespace gyrostat::service {

struct Probe {
  base::Counter reloads_total, reload_failures_total;
  base::Gauge last_reload_successful;  // 1; 0 while the file has a mistake and the old one is in use.
};

}  // namespace gyrostat::service
