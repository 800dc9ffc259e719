#include "store/writer.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace gyrostat::store {
namespace {

// Of one run. A disk that stays full for days must not fill the memory.
constexpr size_t kLeftBehindMax = 1024;

bool NeedsSync(std::span<const engine::JournalEntry> batch) {
  return std::ranges::any_of(batch, [](const engine::JournalEntry& e) { return !e.orders.empty() || e.audit; });
}

// An error that every other entry would meet too. The rest is about the entry: a hole, or a row that is not possible.
bool IsOfTheDisk(const absl::Status& status) {
  return status.code() != absl::StatusCode::kFailedPrecondition && status.code() != absl::StatusCode::kInternal;
}

bool HasRows(const engine::JournalEntry& e) {
  return !e.findings.empty() || !e.episodes.empty() || !e.decisions.empty() || !e.interventions.empty() || e.ack ||
         e.hello || e.audit || !e.ended_reason.empty();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Writer>> Writer::Open(Db* db, Probe* probe) {
  absl::StatusOr<std::unique_ptr<Tables>> tables = Tables::Open(db);
  if (!tables.ok()) return tables.status();
  probe->writable.Set(1);
  return std::unique_ptr<Writer>(new Writer(db, *std::move(tables), probe));
}

void Writer::Write(std::span<engine::JournalEntry> batch) {
  const base::MonotonicTime start = base::SystemClock().Now();
  std::vector<bool> durable(batch.size(), false);
  const absl::Status status = WriteAll(batch, &durable);
  if (!status.ok()) {
    // Nothing of it is there, not even what had been written without a complaint.
    durable.assign(batch.size(), false);
    for (auto& [run, left] : mended_) holes_[run] = std::move(left);
  }
  mended_.clear();
  const auto failed = static_cast<size_t>(std::ranges::count(durable, false));
  probe_->entries_total.Add(batch.size() - failed);
  probe_->failures_total.Add(failed);
  Tell(status, batch.size() - failed, failed);
  const auto busy = base::SystemClock().Now() - start;
  const auto busy_us = std::chrono::duration_cast<std::chrono::microseconds>(busy).count();
  probe_->busy_microseconds_total.Add(static_cast<uint64_t>(busy_us));
  for (size_t i = 0; i < batch.size(); ++i) {
    const auto done = std::move(batch[i].done);
    if (!durable[i]) LeaveBehind(&batch[i]);
    if (done) done(durable[i]);
  }
}

absl::Status Writer::WriteAll(std::span<engine::JournalEntry> batch, std::vector<bool>* durable) {
  absl::Status status = db_->Exec(NeedsSync(batch) ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL");
  if (status.ok()) status = db_->Exec("BEGIN IMMEDIATE");
  for (size_t i = 0; i < batch.size() && status.ok(); ++i) {
    status = db_->Exec("SAVEPOINT entry");
    if (!status.ok()) break;
    const absl::Status one = WriteOne(batch[i]);
    (*durable)[i] = one.ok();
    if (one.ok()) {
      status = db_->Exec("RELEASE entry");
      continue;
    }
    if (IsOfTheDisk(one) || !db_->InTransaction()) {
      status = one;
      break;
    }
    status = db_->Exec("ROLLBACK TO entry; RELEASE entry");
    base::LogDebug("journal entry refused", {{"run", batch[i].run}, {"reason", std::string(one.message())}});
    if (!batch[i].mode_limit) holes_[batch[i].run_number];  // The entries behind it in this batch must fail too.
  }
  if (status.ok()) status = db_->Exec("COMMIT");
  if (!status.ok() && db_->InTransaction()) (void)db_->Exec("ROLLBACK");  // The first error is the one to tell.
  return status;
}

absl::Status Writer::WriteOne(const engine::JournalEntry& entry) {
  if (entry.mode_limit) return tables_->WriteModeLimit(entry);
  const uint64_t run = entry.run_number;
  absl::StatusOr<bool> has = tables_->HasRun(run);
  if (!has.ok()) return has.status();
  const auto hole = holes_.find(run);
  if (!entry.snapshot && (!*has || hole != holes_.end()))
    return absl::FailedPreconditionError("an earlier entry of the run is missing: only a snapshot is taken");
  absl::Status status = tables_->EnsureRun(entry);
  if (hole != holes_.end()) {
    for (const engine::JournalEntry& left : hole->second)
      if (status.ok()) status = tables_->WriteRows(left);
  }
  if (status.ok()) status = tables_->WriteRows(entry);
  if (status.ok() && !entry.event.empty()) status = tables_->WriteEvent(run, entry.event);
  if (status.ok() && entry.snapshot) status = tables_->WriteSnapshot(run, *entry.snapshot);
  if (status.ok() && hole != holes_.end()) mended_.insert(holes_.extract(hole));
  return status;
}

void Writer::LeaveBehind(engine::JournalEntry* entry) {
  if (entry->mode_limit) return;
  LeftBehind& left = holes_[entry->run_number];
  if (entry->revocable || !HasRows(*entry)) return;
  entry->event.clear();
  entry->event.shrink_to_fit();
  entry->snapshot.reset();
  entry->orders.clear();
  if (left.size() >= kLeftBehindMax) {
    probe_->left_behind_total.Add(left.front().findings.size() + left.front().decisions.size() +
                                  left.front().interventions.size() + 1);
    left.erase(left.begin());
  }
  left.push_back(std::move(*entry));
}

void Writer::Tell(const absl::Status& status, size_t written, size_t failed) {
  if (status.ok() && written == 0) return;  // Nothing was asked of the disk.
  const bool was_writable = probe_->writable.value() == 1;
  if (!status.ok() && was_writable)
    base::LogError("journal cannot be written: history is lost and no order leaves until it can",
                   {{"entries", failed}, {"reason", std::string(status.message())}});
  if (status.ok() && !was_writable)
    base::LogInfo("journal can be written again", {{"entries_lost", probe_->failures_total.value()}});
  probe_->writable.Set(status.ok() ? 1 : 0);
  if (!status.ok()) return;
  probe_->transactions_total.Add();
  const absl::StatusOr<int64_t> size =
      db_->Number("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size");
  if (size.ok()) probe_->size_bytes.Set(*size);
}

}  // namespace gyrostat::store
