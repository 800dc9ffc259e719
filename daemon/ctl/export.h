// `gyrostatctl export`: a run's history as gyrostat JSONL, which `replay` reads back to the last bit, or as a table.
#pragma once

#include "ctl/console.h"
#include "ctl/control.h"
#include "ctl/request.h"

namespace gyrostat::ctl {

// Streams: memory does not grow with the run. A table is asked for twice, the first time for its columns.
int Export(const Request& request, Control* control, const Console& console);

}  // namespace gyrostat::ctl
