// Reads what tables.h wrote, for people and for a restart. Each call is one read transaction: it sees one state,
// whatever the writer does meanwhile. Not thread-safe: one reader, one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ports.h"
#include "store/db.h"

namespace gyrostat::store {

class SeriesBuilder;

class Reader {
 public:
  static absl::StatusOr<std::unique_ptr<Reader>> Open(const std::string& path);

  // As engine::History.
  absl::Status ForEachRun(const std::function<absl::Status(engine::StoredRun)>& take);
  absl::StatusOr<std::optional<engine::ModeWord>> ModeLimit();
  absl::StatusOr<std::vector<engine::History::FindingRow>> Findings(const std::string& run);
  absl::StatusOr<std::vector<engine::History::EpisodeRow>> Episodes(const std::string& run);
  absl::StatusOr<std::vector<engine::History::InterventionRow>> Interventions(const std::string& run);
  absl::StatusOr<engine::SeriesData> Series(const engine::SeriesQuery& query);

  absl::StatusOr<engine::ReportPage> Reports(const engine::ReportQuery& query, const engine::ReportCursor& from);
  absl::StatusOr<model::Hello> HelloOf(const std::string& run, const model::AttemptId& attempt);

  // Every report that was acknowledged, in order of arrival.
  using TakeReport = std::function<void(const model::AttemptId& attempt, const model::Report& report)>;
  absl::Status ForEachReport(const std::string& run, const TakeReport& take);
  // In order of writing.
  absl::StatusOr<std::vector<model::Order>> Orders(const std::string& run);
  absl::StatusOr<std::vector<model::Ack>> Acks(const std::string& run);
  absl::Status VerifyAudit();  // As store/audit.h.

 private:
  explicit Reader(std::unique_ptr<Db> db) : db_(std::move(db)) {}
  absl::StatusOr<int64_t> NumberOf(const std::string& run);
  // Runs `read` between BEGIN and COMMIT.
  absl::Status InTransaction(const std::function<absl::Status()>& read);
  // Calls `take` while it returns true.
  using TakeTail =
      std::function<bool(const model::AttemptId& attempt, const model::Report& report, int64_t arrived_unix_ms)>;
  absl::Status ForEachTailReport(int64_t run, const TakeTail& take);
  absl::Status SeriesOfChunks(int64_t run, const engine::SeriesQuery& query, SeriesBuilder* builder,
                              engine::HistoryNotes* notes);
  absl::Status PageOfChunks(int64_t run, const engine::ReportQuery& query, engine::ReportPage* page, bool* full);
  absl::Status PageOfTail(int64_t run, const engine::ReportQuery& query, engine::ReportPage* page);
  template <class T>
  absl::StatusOr<std::vector<T>> Archived(const std::string& run, const std::string& table);

  const std::unique_ptr<Db> db_;
};

}  // namespace gyrostat::store
