// What a person is told of a signal beside its name, and how its curve is drawn, on a page and on a terminal. Pure.
#pragma once

#include <string_view>

#include "ctl/axis.h"
#include "model/signal.h"

namespace gyrostat::ctl {

struct SignalWords {
  model::Signal signal = model::Signal::kNone;
  std::string_view words = {};  // Its unit, or what its name leaves open. May be empty.
  ScaleKind scale = ScaleKind::kByRange;
};

// Those of a stranger are empty.
const SignalWords& WordsOf(model::Signal signal);

}  // namespace gyrostat::ctl
