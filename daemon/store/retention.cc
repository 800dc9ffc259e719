#include "store/retention.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "store/chunk.h"
#include "store/thin.h"

namespace gyrostat::store {
namespace {

using engine::Resolution;

constexpr int64_t kMib = 1 << 20;
constexpr int64_t kDayMs = 86'400'000;
constexpr size_t kDropAtOnce = 16;  // Chunks in one transaction.

// Runs `work` in a transaction; what fails leaves nothing.
template <class Work>
absl::Status InTransaction(Db* db, const Work& work) {
  absl::Status status = db->Exec("BEGIN IMMEDIATE");
  if (!status.ok()) return status;
  status = work();
  if (status.ok()) status = db->Exec("COMMIT");
  if (!status.ok() && db->InTransaction()) (void)db->Exec("ROLLBACK");  // The first error is the one to tell.
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Retention>> Retention::Open(Db* db, const RetentionOptions& options, Probe* probe,
                                                           const base::Clock* clock) {
  std::unique_ptr<Retention> retention(new Retention(db, options, probe, clock));
  absl::Status status = retention->Prepare();
  if (!status.ok()) return status;
  absl::StatusOr<Statement> runs = db->Prepare("SELECT DISTINCT run FROM history");
  if (!runs.ok()) return runs.status();
  for (runs->Bind(); runs->Step();) retention->Touch(static_cast<uint64_t>(runs->Int(0)));
  if (!runs->status().ok()) return runs->status();
  for (const uint64_t run : retention->touched_)
    if (status.ok()) status = retention->Measure(run);
  if (!status.ok()) return status;
  retention->ShowSize();
  return retention;
}

absl::Status Retention::Prepare() {
  const std::pair<Statement*, const char*> all[] = {
      {&select_reports_, "SELECT reports FROM runs WHERE number=?1"},
      {&select_size_, "SELECT coalesce(sum(size), 0) FROM history WHERE run=?1"},
      {&select_above_,
       "SELECT chunk, tier FROM history WHERE run=?1 AND tier=?2 AND first < ?3 AND first + reports <= ?3 AND "
       "damaged=0 "
       "ORDER BY first LIMIT 1"},
      {&select_chunk_,
       "SELECT bytes, layers, heads FROM chunks LEFT JOIN attempts ON attempts.run=chunks.run AND "
       "attempts.attempt=chunks.attempt WHERE id=?1"},
      {&select_oldest_,
       "SELECT chunk, reports FROM history WHERE run=?1 AND first + reports <= ?2 ORDER BY first LIMIT ?3"},
      {&select_old_runs_, "SELECT run FROM history GROUP BY run HAVING max(unix_ms) < ?1"},
      {&update_chunk_, "UPDATE chunks SET bytes=?2 WHERE id=?1"},
      {&update_place_, "UPDATE history SET tier=?2, size=?3 WHERE chunk=?1"},
      {&mark_damaged_, "UPDATE history SET damaged=1 WHERE chunk=?1"},
      {&delete_place_, "DELETE FROM history WHERE chunk=?1"},
      {&delete_chunk_, "DELETE FROM chunks WHERE id=?1"},
      {&count_dropped_, "UPDATE runs SET reports_dropped=reports_dropped + ?2 WHERE number=?1"},
  };
  for (const auto& [statement, sql] : all) {
    absl::StatusOr<Statement> prepared = db_->Prepare(sql);
    if (!prepared.ok()) return prepared.status();
    *statement = *std::move(prepared);
  }
  return absl::OkStatus();
}

bool Retention::Step() {
  const base::MonotonicTime now = clock_->Now();
  if (not_before_ && now < *not_before_) return false;
  if (!look_at_ || now >= *look_at_) {
    look_at_ = now + kLookForOld;
    (void)FindOld();  // Comes again.
  }
  const absl::StatusOr<bool> more = Work();
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(clock_->Now() - now);
  probe_->retention_microseconds_total.Add(static_cast<uint64_t>(took.count()));
  if (more.ok()) {
    not_before_.reset();
    ShowSize();
    return *more;
  }
  if (!not_before_)
    base::LogWarn("old history could not be reduced, to be tried again",
                  {{"reason", std::string(more.status().message())}});
  not_before_ = now + kRetry;
  probe_->retention_failures_total.Add();
  return false;
}

absl::Status Retention::FindOld() {
  if (options_.ended_days == 0) return absl::OkStatus();
  const int64_t before = clock_->UnixMs() - options_.ended_days * kDayMs;
  for (select_old_runs_.Bind(before); select_old_runs_.Step();)
    old_.insert(static_cast<uint64_t>(select_old_runs_.Int(0)));
  select_old_runs_.Restart();
  return select_old_runs_.status();
}

absl::Status Retention::Measure(uint64_t run) {
  if (select_size_.Bind(run).Step()) bytes_[run] = select_size_.Int(0);
  select_size_.Restart();
  return select_size_.status();
}

absl::StatusOr<bool> Retention::Work() {
  if (!old_.empty()) {
    const uint64_t run = *old_.begin();
    const absl::StatusOr<bool> dropped = DropOldest(run, std::numeric_limits<int64_t>::max());
    if (!dropped.ok()) return dropped.status();
    if (!*dropped) old_.erase(run);
    return true;
  }
  while (!touched_.empty()) {
    const uint64_t run = *touched_.begin();
    if (absl::Status status = Measure(run); !status.ok()) return status;
    absl::StatusOr<bool> worked = ByAge(run);
    if (worked.ok() && !*worked && bytes_[run] > options_.run_max_mib * kMib) worked = BySize(run);
    if (!worked.ok()) return worked.status();
    if (*worked) return true;
    touched_.erase(run);
  }
  int64_t total = 0;
  for (const auto& [run, bytes] : bytes_) total += bytes;
  if (total <= options_.total_max_mib * kMib) return false;
  // The largest that can give: the newest reports of each stay.
  std::vector<std::pair<int64_t, uint64_t>> by_size;
  for (const auto& [run, bytes] : bytes_) by_size.emplace_back(bytes, run);
  std::ranges::sort(by_size, std::greater<>());
  for (const auto& [bytes, run] : by_size) {
    const absl::StatusOr<bool> worked = BySize(run);
    if (!worked.ok()) return worked.status();
    if (*worked) return true;
  }
  return false;
}

absl::StatusOr<std::optional<Retention::Chunk>> Retention::OldestAbove(uint64_t run, Resolution tier, int64_t reports) {
  for (const Resolution finer : {Resolution::kFull, Resolution::kHeads}) {
    if (finer >= tier || reports <= 0) break;
    std::optional<Chunk> chunk;
    if (select_above_.Bind(run, finer, reports).Step())
      chunk = Chunk{select_above_.Int(0), static_cast<Resolution>(select_above_.Int(1))};
    select_above_.Restart();
    if (!select_above_.status().ok()) return select_above_.status();
    if (chunk) return chunk;
  }
  return std::nullopt;
}

absl::StatusOr<bool> Retention::ByAge(uint64_t run) {
  int64_t reports = 0;
  if (select_reports_.Bind(run).Step()) reports = select_reports_.Int(0);
  select_reports_.Restart();
  if (!select_reports_.status().ok()) return select_reports_.status();
  const int64_t heads_reports = std::max(options_.heads_reports, options_.full_reports);
  const std::pair<Resolution, int64_t> ages[] = {{Resolution::kExtremes, reports - heads_reports},
                                                 {Resolution::kHeads, reports - int64_t{options_.full_reports}}};
  for (const auto& [to, older] : ages) {
    const auto chunk = OldestAbove(run, to, older);
    if (!chunk.ok()) return chunk.status();
    if (!*chunk) continue;
    if (absl::Status status = Reduce(run, **chunk, to); !status.ok()) return status;
    return true;
  }
  return false;
}

absl::StatusOr<bool> Retention::BySize(uint64_t run) {
  int64_t reports = 0;
  if (select_reports_.Bind(run).Step()) reports = select_reports_.Int(0);
  select_reports_.Restart();
  if (!select_reports_.status().ok()) return select_reports_.status();
  const int64_t older = reports - static_cast<int64_t>(kWholeReports);
  for (const Resolution to : {Resolution::kHeads, Resolution::kExtremes}) {
    const auto chunk = OldestAbove(run, to, older);
    if (!chunk.ok()) return chunk.status();
    if (!*chunk) continue;
    if (absl::Status status = Reduce(run, **chunk, to); !status.ok()) return status;
    return true;
  }
  return DropOldest(run, older);
}

absl::Status Retention::Reduce(uint64_t run, const Chunk& chunk, Resolution to) {
  if (!select_chunk_.Bind(chunk.id).Step()) {
    select_chunk_.Restart();
    return select_chunk_.status().ok() ? absl::DataLossError("a chunk of the history is missing")
                                       : select_chunk_.status();
  }
  const std::string before = select_chunk_.Bytes(0);
  const auto layers = select_chunk_.Optional<uint32_t>(1).value_or(0);
  const auto heads = select_chunk_.Optional<uint32_t>(2).value_or(0);
  select_chunk_.Restart();
  ChunkContent content;
  if (const absl::Status status = UnpackChunk(before, &content); !status.ok()) {
    base::LogError("a chunk of the history is damaged, it is left as it is",
                   {{"run_number", run}, {"chunk", chunk.id}, {"reason", std::string(status.message())}});
    probe_->chunks_damaged_total.Add();
    return InTransaction(db_, [&] { return mark_damaged_.Run(chunk.id); });
  }
  Thin(to, layers, heads, &content.reports);
  const std::string after = PackChunk(content.reports, content.arrived_unix_ms);
  const absl::Status status = InTransaction(db_, [&] {
    const absl::Status written = update_chunk_.Run(chunk.id, Blob{after});
    return written.ok() ? update_place_.Run(chunk.id, to, after.size()) : written;
  });
  if (!status.ok()) return status;
  bytes_[run] += static_cast<int64_t>(after.size()) - static_cast<int64_t>(before.size());
  probe_->chunks_reduced_total.Add();
  return absl::OkStatus();
}

absl::StatusOr<bool> Retention::DropOldest(uint64_t run, int64_t older) {
  if (older <= 0) return false;
  std::vector<std::pair<int64_t, int64_t>> chunks;  // Number and reports.
  for (select_oldest_.Bind(run, older, kDropAtOnce); select_oldest_.Step();)
    chunks.emplace_back(select_oldest_.Int(0), select_oldest_.Int(1));
  select_oldest_.Restart();
  if (!select_oldest_.status().ok()) return select_oldest_.status();
  if (chunks.empty()) return false;
  int64_t reports = 0;
  const absl::Status status = InTransaction(db_, [&] {
    absl::Status each;
    for (const auto& [chunk, count] : chunks) {
      if (each.ok()) each = delete_place_.Run(chunk);
      if (each.ok()) each = delete_chunk_.Run(chunk);
      reports += count;
    }
    return each.ok() ? count_dropped_.Run(run, reports) : each;
  });
  if (!status.ok()) return status;
  probe_->reports_dropped_total.Add(static_cast<uint64_t>(reports));
  if (absl::Status measured = Measure(run); !measured.ok()) return measured;
  return true;
}

void Retention::ShowSize() {
  int64_t total = 0;
  for (const auto& [run, bytes] : bytes_) total += bytes;
  probe_->history_bytes.Set(total);
}

}  // namespace gyrostat::store
