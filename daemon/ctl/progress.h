// How far a long command is: one line on the error stream's terminal, rewritten as it goes, gone at the end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "ctl/console.h"
#include "ctl/text.h"

namespace gyrostat::ctl {

class ProgressLine {
 public:
  // Silent where the error stream is no terminal, and below a total of `from`.
  ProgressLine(const Console& console, std::string what, uint64_t from)
      : console_(console), what_(std::move(what)), from_(from) {}
  ~ProgressLine() {
    if (shown_ >= 0) console_.err << "\r\x1b[K" << std::flush;
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void operator()(uint64_t done, uint64_t total) {
    if (!console_.err_terminal || total < from_ || total == 0) return;
    const int percent = static_cast<int>(100 * std::min(done, total) / total);
    if (percent == shown_) return;
    shown_ = percent;
    console_.err << "\r\x1b[K" << Escape(what_) << " " << percent << " %" << std::flush;
  }

 private:
  const Console& console_;
  const std::string what_;
  const uint64_t from_;
  int shown_ = -1;
};

}  // namespace gyrostat::ctl
