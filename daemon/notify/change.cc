#include "notify/change.h"

namespace gyrostat::notify {

std::optional<Change> ChangeOf(const engine::JournalEntry& entry) {
  if (entry.run.empty() || (entry.findings.empty() && entry.episodes.empty() && entry.interventions.empty() &&
                            entry.ended_reason.empty()))
    return std::nullopt;
  Change change;
  change.run = entry.run;
  change.run_number = entry.run_number;
  change.attempt = entry.attempt;
  change.unix_ms = entry.at.unix_ms;
  change.findings = entry.findings;
  for (const engine::EpisodeChange& each : entry.episodes) change.episodes.push_back(each.diagnosis);
  change.interventions = entry.interventions;
  change.ended_attempt = entry.ended_attempt;
  change.ended_reason = entry.ended_reason;
  return change;
}

}  // namespace gyrostat::notify
