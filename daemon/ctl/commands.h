// The commands that ask a daemon. Each prints its answer and returns the exit code.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "ctl/console.h"
#include "ctl/control.h"
#include "ctl/request.h"

namespace gyrostat::ctl {

// Runs `request` (any command but the offline ones and doctor) against `control`.
int RunCommand(const Request& request, Control* control, const Console& console);

// Prints why a call failed, with what to do where nobody answered, and returns kRefused or kUnreachable.
int Complain(const absl::Status& status, const std::string& address, const Console& console);

}  // namespace gyrostat::ctl
