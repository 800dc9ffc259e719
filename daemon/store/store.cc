#include "store/store.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "store/audit.h"
#include "store/data_dir.h"
#include "store/db.h"
#include "store/schema.h"
#include "store/writer.h"

namespace gyrostat::store {
namespace {

constexpr char kFileName[] = "gyrostat.db";

// How long the writer waits before it looks again whether it shall stop; it is woken for every entry anyway.
constexpr base::Milliseconds kIdle{1000};

// Connections for readers, made when all are lent out. Thread-safe.
class ReaderPool {
 public:
  explicit ReaderPool(std::string path) : path_(std::move(path)) {}

  absl::StatusOr<std::unique_ptr<Reader>> Take() GYROSTAT_EXCLUDES(mutex_) {
    {
      base::MutexLock lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Reader> reader = std::move(idle_.back());
        idle_.pop_back();
        return reader;
      }
    }
    return Reader::Open(path_);
  }
  void GiveBack(std::unique_ptr<Reader> reader) GYROSTAT_EXCLUDES(mutex_) {
    base::MutexLock lock(mutex_);
    idle_.push_back(std::move(reader));
  }

 private:
  const std::string path_;
  base::Mutex mutex_;
  std::vector<std::unique_ptr<Reader>> idle_ GYROSTAT_GUARDED_BY(mutex_);
};

// A damaged file is for a person to judge: says what to do besides what is wrong.
absl::Status Explain(const absl::Status& status, const std::string& path) {
  if (status.code() != absl::StatusCode::kDataLoss) return status;
  return absl::DataLossError(path + " is damaged or no database (" + std::string(status.message()) +
                             "): move it away to start with an empty history; \"sqlite3 " + path +
                             " .recover\" writes out what can still be read");
}

}  // namespace

struct Store::Impl {
  Impl(std::unique_ptr<DataDir> data_dir, const std::string& path, const StoreOptions& options)
      : dir(std::move(data_dir)), readers(path), queue(options.queue_capacity_entries) {}

  // What waits to be written comes first; old history is worked on in between, a chunk at a time.
  void Loop() {
    std::vector<engine::JournalEntry> batch;
    bool more = true;  // Retention may have something to do.
    while (queue.PopAllUntil(base::SystemClock().Now() + (more ? base::Milliseconds(0) : kIdle), &batch)) {
      probe.queue_entries.Set(static_cast<int64_t>(batch.size()));
      for (const engine::JournalEntry& entry : batch)
        if (entry.snapshot) retention->Touch(entry.run_number);
      if (!batch.empty()) writer->Write(batch);
      batch.clear();
      more = retention->Step();
    }
    probe.queue_entries.Set(0);
  }

  // Lends a reader to `read`.
  template <class Read>
  auto With(const Read& read) -> decltype(read(std::declval<Reader&>())) {
    absl::StatusOr<std::unique_ptr<Reader>> reader = readers.Take();
    if (!reader.ok()) return reader.status();
    auto result = read(**reader);
    readers.GiveBack(*std::move(reader));
    return result;
  }

  absl::Status Explained(const absl::Status& status) const { return Explain(status, dir->FilePath(kFileName)); }
  template <class T>
  absl::StatusOr<T> Explained(absl::StatusOr<T> result) const {
    if (!result.ok()) return Explained(result.status());
    return result;
  }

  Probe probe;
  const std::unique_ptr<DataDir> dir;
  std::unique_ptr<Db> db;  // The writer's.
  std::unique_ptr<Writer> writer;
  std::unique_ptr<Retention> retention;
  ReaderPool readers;
  base::BoundedQueue<engine::JournalEntry> queue;
  std::thread thread;
};

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const StoreOptions& options) {
  absl::StatusOr<std::unique_ptr<DataDir>> dir = DataDir::Open(options.data_dir);
  if (!dir.ok()) return dir.status();
  const std::string path = (*dir)->FilePath(kFileName);
  auto impl = std::make_unique<Impl>(*std::move(dir), path, options);
  absl::StatusOr<std::unique_ptr<Db>> db = Db::Open(path, Db::Access::kWrite);
  if (!db.ok()) return Explain(db.status(), path);
  impl->db = *std::move(db);
  if (absl::Status status = Migrate(path, impl->db.get()); !status.ok()) return Explain(status, path);
  absl::StatusOr<std::unique_ptr<Writer>> writer = Writer::Open(impl->db.get(), &impl->probe);
  if (!writer.ok()) return Explain(writer.status(), path);
  impl->writer = *std::move(writer);
  absl::StatusOr<std::unique_ptr<Retention>> retention =
      Retention::Open(impl->db.get(), options.retention, &impl->probe,
                      options.clock != nullptr ? options.clock : &base::SystemClock());
  if (!retention.ok()) return Explain(retention.status(), path);
  impl->retention = *std::move(retention);
  if (absl::Status status = store::VerifyAudit(impl->db.get()); !status.ok())
    base::LogError("the audit does not verify", {{"path", path}, {"reason", std::string(status.message())}});
  impl->thread = std::thread([raw = impl.get()] { raw->Loop(); });
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

Store::~Store() { Stop(); }

void Store::Stop() {
  impl_->queue.Close();
  if (impl_->thread.joinable()) impl_->thread.join();
}

void Store::Append(engine::JournalEntry entry) {
  const std::function<void(bool)> done = entry.done;
  if (!impl_->queue.Push(std::move(entry)) && done) done(false);
}

absl::Status Store::ForEachRun(const std::function<absl::Status(engine::StoredRun)>& take) {
  return impl_->Explained(impl_->With([&](Reader& reader) { return reader.ForEachRun(take); }));
}
absl::StatusOr<std::optional<engine::ModeWord>> Store::ModeLimit() {
  return impl_->Explained(impl_->With([](Reader& reader) { return reader.ModeLimit(); }));
}
absl::StatusOr<std::vector<Store::FindingRow>> Store::Findings(const std::string& run) {
  return impl_->Explained(impl_->With([&](Reader& reader) { return reader.Findings(run); }));
}
absl::StatusOr<std::vector<Store::EpisodeRow>> Store::Episodes(const std::string& run) {
  return impl_->Explained(impl_->With([&](Reader& reader) { return reader.Episodes(run); }));
}
absl::StatusOr<std::vector<Store::InterventionRow>> Store::Interventions(const std::string& run) {
  return impl_->Explained(impl_->With([&](Reader& reader) { return reader.Interventions(run); }));
}
absl::StatusOr<engine::SeriesData> Store::Series(const engine::SeriesQuery& query) {
  auto series = impl_->Explained(impl_->With([&](Reader& reader) { return reader.Series(query); }));
  if (series.ok() && series->notes.chunks_damaged > 0) impl_->probe.damaged_reads_total.Add();
  return series;
}
absl::StatusOr<engine::ReportPage> Store::Reports(const engine::ReportQuery& query,
                                                  const engine::ReportCursor& from) {
  return impl_->Explained(impl_->With([&](Reader& reader) { return reader.Reports(query, from); }));
}
absl::StatusOr<model::Hello> Store::HelloOf(const std::string& run, const model::AttemptId& attempt) {
  return impl_->Explained(impl_->With([&](Reader& reader) { return reader.HelloOf(run, attempt); }));
}
absl::Status Store::ForEachReport(const std::string& run, const Reader::TakeReport& take) {
  return impl_->With([&](Reader& reader) { return reader.ForEachReport(run, take); });
}
absl::StatusOr<std::vector<model::Order>> Store::Orders(const std::string& run) {
  return impl_->With([&](Reader& reader) { return reader.Orders(run); });
}
absl::StatusOr<std::vector<model::Ack>> Store::Acks(const std::string& run) {
  return impl_->With([&](Reader& reader) { return reader.Acks(run); });
}
absl::Status Store::VerifyAudit() {
  return impl_->With([](Reader& reader) { return reader.VerifyAudit(); });
}

Probe& Store::probe() { return impl_->probe; }

}  // namespace gyrostat::store
