// What `replay` prints of a run: an object for programs, a page for people. Pure.
#pragma once

#include <string>

#include "ctl/replayed.h"
#include "ctl/text.h"

namespace gyrostat::ctl {

// The object of design.md §8, without the newline.
std::string Json(const Replayed& run);

enum class Detail { kEpisodes, kFindings };

// The diagnosis of each episode, signals with their curves, spike scores, what was not read. Findings are counted, with
// kFindings listed too; those of other tools, which have no episodes, always are.
std::string RenderReplayed(const Replayed& run, Detail detail, const Style& style);

}  // namespace gyrostat::ctl
