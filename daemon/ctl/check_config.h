// `gyrostatctl check-config`: is this file one that gyrostatd would start with?
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "ctl/console.h"
#include "ctl/request.h"

namespace gyrostat::ctl {

// OK, or a message with a line for each problem. main.cc plugs in config/, which this room, on the same level, may not
// include.
using ConfigCheck = std::function<absl::Status(const std::string& file)>;

int CheckConfig(const Request& request, const Console& console, const ConfigCheck& check);

}  // namespace gyrostat::ctl
