// A terminal's own page: a picture drawn over the last one, and the terminal given back as it was.
//
// While a stage stands, the terminal shows its second screen (what was typed before is there again afterwards), the
// cursor is hidden, lines do not wrap, and keys are not echoed. A picture is one write, line over line, so nothing
// flickers. The stage's own thread listens to signals and keys:
//
//   SIGWINCH                           the picture is asked for again in the new size
//   SIGINT SIGTERM SIGHUP SIGQUIT      the terminal is given back, then the signal ends the program as it always does
//   SIGTSTP (Ctrl-Z)                   the terminal is given back, the program stops; when it goes on, so does the page
//   q                                  the terminal is given back, the program ends with status 0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace gyrostat::ctl {

struct Size {
  size_t columns = 80, rows = 24;
};

// Lines for a window, each ended by a newline: at most size.rows of them, each narrower than size.columns. Called on
// the thread of Redraw and on the stage's own, never on both at once.
using Picture = std::function<std::string(const Size&)>;

class Stage {
 public:
  virtual ~Stage() = default;  // Gives the terminal back.

  // Shows the picture now. Thread-safe. False once the terminal takes nothing more.
  virtual bool Redraw() = 0;
};

// On standard output and input; `size` tells the window. One at a time in a process: it takes the signals above for
// itself and puts their handlers back at its end.
std::unique_ptr<Stage> OpenStage(std::function<Size()> size, Picture picture);

}  // namespace gyrostat::ctl
