// What lies in assets/ of this room, embedded when the program is built (gyrostat_embed in the top CMakeLists.txt).
#pragma once

#include "base/asset.h"

namespace gyrostat::ctl {

extern const base::Asset kReportCss, kReportJs;  // The page of `replay --html`.

}  // namespace gyrostat::ctl
