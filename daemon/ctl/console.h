// Where a command writes, and what it knows of the terminal and the time. main.cc makes one; tests write to strings.
#pragma once

#include <cstddef>
#include <functional>
#include <ostream>

#include "base/clock.h"
#include "ctl/text.h"

namespace gyrostat::ctl {

struct Size {
  size_t columns = 80, rows = 24;
};

struct Console {
  std::ostream& out;
  std::ostream& err;
  const base::Clock& clock;
  Style style;
  bool terminal = false;        // `out` is one: watch may redraw, series may summarise.
  std::function<Size()> size = [] { return Size(); };  // Asked again at each redraw: windows change.
  bool err_terminal = false;    // `err` is one: progress may be shown.
};

}  // namespace gyrostat::ctl
