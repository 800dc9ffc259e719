// Gathers what doctor judges: asks the daemon, its HTTP side, the file system, the loader and the environment.
#pragma once

#include <string>

#include "ctl/control.h"
#include "ctl/doctor.h"
#include "ctl/request.h"

namespace gyrostat::ctl {

// Blocks for some seconds at most: each question has its own limit. Changes nothing.
DoctorFacts GatherFacts(const Request& request, Control* control, int64_t now_unix_ms);

}  // namespace gyrostat::ctl
