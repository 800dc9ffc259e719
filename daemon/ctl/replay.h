// `gyrostatctl replay`: judges finished logs without a daemon.
#pragma once

#include "ctl/console.h"
#include "ctl/request.h"

namespace gyrostat::ctl {

// Reads each file, prints each run. A file that cannot be read is told on the error stream, and the rest go on;
// kRefused then, and where a finding of request.fail_on or above is among those printed.
int ReplayFiles(const Request& request, const Console& console);

}  // namespace gyrostat::ctl
