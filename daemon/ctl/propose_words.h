// The words of `gyrostatctl propose`: each kind of intervention, and what it takes.
#pragma once

#include "ctl/request.h"

namespace CLI {
class App;
}

namespace gyrostat::ctl {

// Examples and defaults, below the options in --help.
extern const char kProposeExamples[];

// Options of the subcommand, bound to `request`, which outlives it.
void AddProposeWords(CLI::App* sub, Request* request);

// What no kind takes together; empty: nothing. "--alpha is given to lr_scale, wanted deepnorm_alpha".
std::string WrongInPropose(const ProposeQuestion& question);

}  // namespace gyrostat::ctl
