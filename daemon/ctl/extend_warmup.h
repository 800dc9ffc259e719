// The warm-up calculator: the learning rate step by step if a schedule's warm-up were extended. The arithmetic is
// remedy/'s, so that operator, daemon and job cannot disagree.
#pragma once

#include "ctl/console.h"
#include "ctl/request.h"

namespace gyrostat::ctl {

// Prints a row for each step asked for; kRefused, and a sentence, where a daemon would order no such extension.
int ExtendWarmup(const Request& request, const Console& console);

}  // namespace gyrostat::ctl
