// `replay --html`: the runs as one page that needs nothing but itself. No script, no network; light or dark as the
// reader's system is; prints well. Pure.
#pragma once

#include <span>
#include <string>

#include "ctl/replayed.h"

namespace gyrostat::ctl {

std::string HtmlReport(std::span<const Replayed> runs);

}  // namespace gyrostat::ctl
