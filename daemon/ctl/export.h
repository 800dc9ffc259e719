// `gyrostatctl export`: a run's history as gyrostat JSONL or as a table, which `replay` reads back.
#pragma once

#include "ctl/console.h"
#include "ctl/control.h"
#include "ctl/request.h"

namespace gyrostat::ctl {

// Asks for one series after the other, so it holds the whole history in memory, and the daemon reads a signal once for
// each of its layers and heads: an array with more than kExportCellsMax of them is left out, and told.
int Export(const Request& request, Control* control, const Console& console);

inline constexpr uint32_t kExportCellsMax = 1024;

}  // namespace gyrostat::ctl
