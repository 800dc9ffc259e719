// The DeepNorm calculator: alpha, beta and the update budget of an architecture. The arithmetic is remedy/'s.
#pragma once

#include "ctl/console.h"
#include "ctl/request.h"

namespace gyrostat::ctl {

// Prints a row for each stack; kRefused, and a sentence, for depths that cannot be.
int DeepNorm(const Request& request, const Console& console);

}  // namespace gyrostat::ctl
