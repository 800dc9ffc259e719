// The clip calculator: what QK-Clip would do to the heads of one layer. The arithmetic is remedy/'s, so that operator
// and daemon cannot disagree.
#pragma once

#include "ctl/console.h"
#include "ctl/request.h"

namespace gyrostat::ctl {

// Prints a row for each head; kRefused, and a sentence, for arguments that cannot be. A maximum that is not finite is
// never clipped: its own factors are 1. With the widths of an MLA
// head also which rows of which projection take them.
int QkClip(const Request& request, const Console& console);

}  // namespace gyrostat::ctl
