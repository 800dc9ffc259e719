// Turns batches of journal entries into transactions, and remembers which runs have a hole.
//
// A batch is one transaction; an entry in it that fails alone (a savepoint each) takes no other with it. Orders and the
// words of people are synced to the disk before anybody hears of them; reports survive the end of the process, and a
// loss of power may take the last of them. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ports.h"
#include "store/db.h"
#include "store/probe.h"
#include "store/tables.h"

namespace gyrostat::store {

class Writer {
 public:
  // `db` and `probe` outlive the writer.
  static absl::StatusOr<std::unique_ptr<Writer>> Open(Db* db, Probe* probe);

  // Writes the entries and calls each one's `done`, in order.
  void Write(std::span<engine::JournalEntry> batch);

 private:
  // What of failed entries of a run waits for its next snapshot: rows, no events and no orders (those were never sent).
  using LeftBehind = std::vector<engine::JournalEntry>;

  Writer(Db* db, std::unique_ptr<Tables> tables, Probe* probe) : db_(db), tables_(std::move(tables)), probe_(probe) {}
  absl::Status WriteAll(std::span<engine::JournalEntry> batch, std::vector<bool>* durable);
  absl::Status WriteOne(const engine::JournalEntry& entry);
  void LeaveBehind(engine::JournalEntry* entry);
  void Tell(const absl::Status& status, size_t written, size_t failed);

  Db* const db_;
  const std::unique_ptr<Tables> tables_;
  Probe* const probe_;
  std::map<uint64_t, LeftBehind> holes_;   // By run number; a run with a hole is here even if nothing is left behind.
  std::map<uint64_t, LeftBehind> mended_;  // In the transaction at hand; holes again if it fails.
};

}  // namespace gyrostat::store
