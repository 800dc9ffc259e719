// How the parts of a journal entry become rows. Writes only; reader.h reads. Runs inside the caller's transaction.
//
// Not thread-safe: belongs to the writer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ports.h"
#include "store/audit.h"
#include "store/db.h"

namespace gyrostat::store {

class Tables {
 public:
  // `db` outlives the tables.
  static absl::StatusOr<std::unique_ptr<Tables>> Open(Db* db);

  absl::StatusOr<bool> HasRun(uint64_t number);
  // Makes the run's row where it is missing. Another run of the name keeps its rows under NAME.unreadable-NUMBER: the
  // engine numbers a run anew only when it could not read the old one.
  absl::Status EnsureRun(const engine::JournalEntry& entry);
  // Everything but the event and the snapshot. Rows that are there already are brought up to date.
  absl::Status WriteRows(const engine::JournalEntry& entry);
  absl::Status WriteModeLimit(const engine::JournalEntry& entry);  // With its audit; the daemon's own entry.
  absl::Status WriteEvent(uint64_t run, const std::string& event);
  // Puts `snapshot` in the place of the run's events; their reports go to the history as chunks.
  absl::Status WriteSnapshot(uint64_t run, const std::string& snapshot);

 private:
  explicit Tables(Db* db) : db_(db) {}
  absl::Status Prepare();
  absl::Status WriteAttempt(const engine::JournalEntry& entry);
  absl::Status WriteFinding(const engine::JournalEntry& entry, const model::Finding& finding);
  absl::Status WriteEpisode(const engine::JournalEntry& entry, const engine::EpisodeChange& change);
  absl::Status WriteIntervention(const engine::JournalEntry& entry, const model::Intervention& intervention);
  absl::Status WriteOrder(const engine::JournalEntry& entry, const model::Order& order);
  absl::Status WriteAudit(const engine::JournalEntry& entry, std::string action, std::string subject,
                          std::string author, std::string detail);
  absl::Status WriteChunks(uint64_t run);

  Db* const db_;
  Statement select_run_, rename_run_, insert_run_, update_mode_;
  Statement upsert_attempt_, end_attempt_;
  Statement upsert_finding_, upsert_episode_, join_episode_, insert_decision_;
  Statement select_intervention_, upsert_intervention_, insert_order_, insert_ack_;
  Statement last_hash_, insert_audit_;
  Statement insert_event_, select_events_, delete_events_, upsert_snapshot_, upsert_mode_limit_;
  Statement insert_chunk_, insert_place_, count_reports_;
};

}  // namespace gyrostat::store
