// What a detector says: a condition began, and later perhaps that it ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/archive.h"
#include "model/ids.h"
#include "model/intervention.h"
#include "model/signal.h"

namespace gyrostat::model {

enum class Severity : uint8_t { kInfo = 0, kWarning = 1, kCritical = 2 };
const char* Token(Severity v);  // info warning critical

struct Finding {
  uint64_t id = 0;  // Given by the engine; unique within a daemon's data directory. 0 inside detect/.
  uint64_t key = 0;  // The detector's own number for this condition: its end and its escalation carry the same key.
  std::string detector;
  Severity severity = Severity::kInfo;
  Signal signal = Signal::kNone;
  std::optional<uint32_t> layer, head, rank;
  Step step_begin = 0;     // First step that belongs to it.
  Step step_detected = 0;  // When a live daemon says it.
  std::optional<Step> step_end;  // Last step that belongs to it; set once it is over.
  std::optional<bool> healed;
  double value = 0, expected = 0;  // In the signal's unit.
  std::string message;             // A sentence for a tired person.
  std::optional<InterventionKind> recommend;
  uint64_t episode = 0;  // Of those of its run, given by the engine (engine/episodes.h). 0: it belongs to none.

  template <class Archive>
  void Fields(Archive& a) {
    a(id, key, detector, severity, signal, layer, head, rank, step_begin, step_detected, step_end, healed,
      value, expected, message, recommend, episode);
  }
};

}  // namespace gyrostat::model
