// `gyrostatctl replay`: judges finished logs without a daemon.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "ctl/console.h"
#include "ctl/request.h"
#include "engine/run_options.h"

namespace gyrostat::ctl {

// The thresholds in a gyrostatd configuration file, or what is wrong with it, a line for each mistake.
using ThresholdsReader = std::function<absl::StatusOr<engine::RunOptions>(const std::string& file)>;

// Reads each file, prints each run. A file that cannot be read is told on the error stream, and the rest go on;
// kRefused then, and where a finding of request.fail_on or above is among those printed.
int ReplayFiles(const Request& request, const Console& console, const ThresholdsReader& read_thresholds);

}  // namespace gyrostat::ctl
