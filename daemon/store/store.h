// The embedded store: one data directory, one SQLite database in it, one writer thread.
//
// What Append has called durable survives a kill -9 at any moment (write-ahead log); what it has not, the client sends
// again. Reads go to connections of their own and never wait for the writer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ports.h"
#include "store/probe.h"
#include "store/reader.h"
#include "store/retention.h"

namespace gyrostat::store {

struct StoreOptions {
  std::string data_dir;
  uint32_t queue_capacity_entries = 1024;  // Full: Append waits for the writer. [16, 1e6].
  RetentionOptions retention = {};
  const base::Clock* clock = nullptr;  // Of retention. Null: the system's.
};

// Thread-safe.
class Store : public engine::Journal, public engine::History {
 public:
  // Locks the directory, makes or migrates the database, starts the writer. Errors name the directory or the file and
  // what is wrong with it: in use, read-only, not a database, damaged, made by a newer version.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const StoreOptions& options);
  ~Store() override;  // Stops.

  // Writes what waits, then ends the writer. Appends after it are answered with false. Idempotent.
  void Stop();

  void Append(engine::JournalEntry entry) override;

  absl::Status ForEachRun(const std::function<absl::Status(engine::StoredRun)>& take) override;
  absl::StatusOr<std::optional<engine::ModeWord>> ModeLimit() override;
  absl::StatusOr<std::vector<FindingRow>> Findings(const std::string& run) override;
  absl::StatusOr<std::vector<EpisodeRow>> Episodes(const std::string& run) override;
  absl::StatusOr<std::vector<InterventionRow>> Interventions(const std::string& run) override;
  absl::StatusOr<engine::SeriesData> Series(const engine::SeriesQuery& query) override;
  absl::StatusOr<engine::ReportPage> Reports(const engine::ReportQuery& query,
                                             const engine::ReportCursor& from) override;
  absl::StatusOr<model::Hello> HelloOf(const std::string& run, const model::AttemptId& attempt) override;

  // The record behind an intervention, for audits and replays; as Reader.
  absl::Status ForEachReport(const std::string& run, const Reader::TakeReport& take);
  absl::StatusOr<std::vector<model::Order>> Orders(const std::string& run);
  absl::StatusOr<std::vector<model::Ack>> Acks(const std::string& run);
  // OK, or DATA_LOSS naming the first row of the audit that was changed or is missing.
  absl::Status VerifyAudit();

  Probe& probe();

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gyrostat::store
