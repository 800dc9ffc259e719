// What a read of history could not show, in sentences: whoever plots old steps must know that they are reduced. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "gyrostat/v1/control.pb.h"

namespace gyrostat::ctl {

// One line each, with "gyrostatctl: " before it; empty when everything that was reported is there.
std::string RenderNotes(const v1::HistoryNotes& notes);

// Puts together what the messages of an export say of themselves.
class ExportNotes {
 public:
  void Take(const v1::ExportChunk& chunk);
  const v1::HistoryNotes& notes() const { return notes_; }

 private:
  v1::HistoryNotes notes_;
};

}  // namespace gyrostat::ctl
