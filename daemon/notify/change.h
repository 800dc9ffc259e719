// What of one journal entry may be worth telling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/ports.h"

namespace gyrostat::notify {

struct Change {
  std::string run;
  uint64_t run_number = 0;
  model::AttemptId attempt;
  int64_t unix_ms = 0;
  std::vector<model::Finding> findings;
  std::vector<diagnose::Diagnosis> episodes;
  std::vector<model::Intervention> interventions;
  model::AttemptId ended_attempt;  // Meaningful where ended_reason is not empty.
  std::string ended_reason;
};

// Nothing where the entry holds none of that: nearly always.
std::optional<Change> ChangeOf(const engine::JournalEntry& entry);

}  // namespace gyrostat::notify
