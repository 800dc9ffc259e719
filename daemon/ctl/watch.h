// `gyrostatctl watch`: one run, live. On a terminal a page that redraws itself (stage.h, watch_screen.h); elsewhere a
// line, or with --json an object, an update. With --once one page, printed as any other text.
#pragma once

#include "ctl/console.h"
#include "ctl/control.h"
#include "ctl/request.h"

namespace gyrostat::ctl {

// Ends after request.count updates (0: never), when the run is unknown, or when nothing can be written. On a terminal
// it outlives the daemon and goes on when that is back; elsewhere a broken stream is the end (kUnreachable).
int Watch(const Request& request, Control* control, const Console& console);

}  // namespace gyrostat::ctl
