// What `replay` prints of a run: an object for programs, a page for people. Pure.
#pragma once

#include <string>

#include "ctl/replayed.h"
#include "ctl/text.h"

namespace gyrostat::ctl {

// The object of design.md §8, without the newline.
std::string Json(const Replayed& run);

// Signals with their curves, spike scores, findings, what was not read.
std::string RenderReplayed(const Replayed& run, const Style& style);

}  // namespace gyrostat::ctl
