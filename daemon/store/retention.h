// Old history becomes smaller, then goes: which chunk is next, and one small transaction for it (thin.h says what is
// left of a chunk).
//
// A run keeps its newest `full_reports` whole and its newest `heads_reports` with their worst heads; what is older
// keeps extremes. Above `run_max_mib` or `total_max_mib` the same happens sooner, oldest first, and when nothing is
// left to reduce the oldest chunks are dropped; of several runs the largest gives. A run of which nothing came for
// `ended_days` loses its signals; findings, interventions and the audit stay for ever. A limit of size never touches
// the newest kWholeReports of a run.
//
// A chunk is rewritten in its place, under its number: a reader's cursor stays right, and a kill -9 leaves it as it was
// or as it should be. Not thread-safe: belongs to the writer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/ports.h"
#include "store/db.h"
#include "store/probe.h"

namespace gyrostat::store {

struct RetentionOptions {
  uint32_t full_reports = 100'000;     // Of each run, the newest. [64, 1e9].
  uint32_t heads_reports = 1'000'000;  // [64, 1e9]; below full_reports: nothing is kept in between.
  uint32_t run_max_mib = 32'768;       // Of chunks of one run. [1, 1e8].
  uint32_t total_max_mib = 131'072;    // Of all runs. [1, 1e8].
  uint32_t ended_days = 0;             // 0: for ever.
};

class Retention {
 public:
  static constexpr uint64_t kWholeReports = 1024;
  static constexpr base::Milliseconds kRetry{30'000};       // After a failure, which is mostly a full disk.
  static constexpr base::Milliseconds kLookForOld{600'000};  // Between two looks for runs that are over.

  // All pointers outlive it.
  static absl::StatusOr<std::unique_ptr<Retention>> Open(Db* db, const RetentionOptions& options, Probe* probe,
                                                         const base::Clock* clock);

  // A chunk of the run was written.
  void Touch(uint64_t run) { touched_.insert(run); }

  // Does one piece of work: one chunk, or some to drop. True: there may be more. Errors are told and counted here.
  bool Step();

 private:
  struct Chunk {
    int64_t id = 0;
    engine::Resolution tier = engine::Resolution::kFull;
  };
  Retention(Db* db, const RetentionOptions& options, Probe* probe, const base::Clock* clock)
      : db_(db), options_(options), probe_(probe), clock_(clock) {}
  absl::Status Prepare();
  absl::StatusOr<bool> Work();
  absl::Status FindOld();
  absl::Status Measure(uint64_t run);
  // The oldest chunk above `tier` of the first `reports` of the run.
  absl::StatusOr<std::optional<Chunk>> OldestAbove(uint64_t run, engine::Resolution tier, int64_t reports);
  absl::StatusOr<bool> ByAge(uint64_t run);
  absl::StatusOr<bool> BySize(uint64_t run);
  absl::Status Reduce(uint64_t run, const Chunk& chunk, engine::Resolution to);
  absl::StatusOr<bool> DropOldest(uint64_t run, int64_t older);  // Of its first `older` reports.
  void ShowSize();

  Db* const db_;
  const RetentionOptions options_;
  Probe* const probe_;
  const base::Clock* const clock_;
  Statement select_reports_, select_size_, select_above_, select_chunk_, select_oldest_, select_old_runs_;
  Statement update_chunk_, update_place_, mark_damaged_, delete_place_, delete_chunk_, count_dropped_;
  std::set<uint64_t> touched_;            // To be looked at.
  std::set<uint64_t> old_;                // To be dropped.
  std::map<uint64_t, int64_t> bytes_;     // Of each run's chunks.
  std::optional<base::MonotonicTime> not_before_, look_at_;
};

}  // namespace gyrostat::store
