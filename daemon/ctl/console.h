// Where a command writes, and what it knows of the terminal and the time. main.cc makes one; tests write to strings.
#pragma once

#include <functional>
#include <memory>
#include <ostream>

#include "base/clock.h"
#include "ctl/stage.h"
#include "ctl/text.h"

namespace gyrostat::ctl {

struct Console {
  std::ostream& out;
  std::ostream& err;
  const base::Clock& clock;
  Style style;
  bool terminal = false;        // `out` is one: watch may redraw, series may summarise.
  std::function<Size()> size = [] { return Size(); };  // Asked again at each redraw: windows change.
  bool err_terminal = false;    // `err` is one: progress may be shown.
  // Opens a page of its own on `out` when that is a terminal that can have one; else empty.
  std::function<std::unique_ptr<Stage>(Picture)> stage = nullptr;
};

}  // namespace gyrostat::ctl
