// A journal and its history in memory, with the disk's bad days on request: it can hold, fail and stall.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "engine/ports.h"

namespace gyrostat {

// Thread-safe. Entries settle in order on a thread of its own.
class MemoryStore final : public engine::Journal, public engine::History {
 public:
  MemoryStore() : thread_([this] { Loop(); }) {}
  ~MemoryStore() override {
    {
      base::MutexLock lock(mutex_);
      stop_ = true;
      held_ = stalled_ = false;
    }
    changed_.NotifyAll();
    thread_.join();
  }

  // While held nothing becomes durable; entries wait.
  void Hold(bool held) { Set(&MemoryStore::held_, held); }
  // While failing nothing becomes durable; entries are answered so.
  void Fail(bool failing) { Set(&MemoryStore::failing_, failing); }
  // While stalled Append does not come back, as when the writer's queue is full.
  void Stall(bool stalled) { Set(&MemoryStore::stalled_, stalled); }
  size_t waiting() const {
    base::MutexLock lock(mutex_);
    return entries_.size();
  }

  // engine::Journal.
  void Append(engine::JournalEntry entry) override {
    {
      base::MutexLock lock(mutex_);
      while (stalled_) changed_.Wait(mutex_);
      entries_.push_back(std::move(entry));
    }
    changed_.NotifyAll();
  }

  // engine::History.
  absl::Status ForEachRun(const std::function<absl::Status(engine::StoredRun)>&) override { return absl::OkStatus(); }
  absl::StatusOr<std::optional<engine::ModeWord>> ModeLimit() override { return std::optional<engine::ModeWord>(); }
  absl::StatusOr<std::vector<FindingRow>> Findings(const std::string& run) override {
    base::MutexLock lock(mutex_);
    std::vector<FindingRow> rows;
    for (const auto& [id, row] : findings_[run]) rows.push_back(row);
    return rows;
  }
  absl::StatusOr<std::vector<EpisodeRow>> Episodes(const std::string& run) override {
    base::MutexLock lock(mutex_);
    std::vector<EpisodeRow> rows;
    for (const auto& [id, row] : episodes_[run]) rows.push_back(row);
    return rows;
  }
  absl::StatusOr<std::vector<InterventionRow>> Interventions(const std::string& run) override {
    base::MutexLock lock(mutex_);
    std::vector<InterventionRow> rows;
    for (const auto& [id, row] : interventions_[run]) rows.push_back(row);
    return rows;
  }
  // Scalars only: what reading blocks back means is store/'s own test.
  absl::StatusOr<engine::SeriesData> Series(const engine::SeriesQuery& query) override {
    base::MutexLock lock(mutex_);
    engine::SeriesData data;
    for (const model::Report& report : reports_[query.run]) {
      if (query.from_step && report.step < *query.from_step) continue;
      if (query.to_step && report.step > *query.to_step) continue;
      if (report.Has(query.signal)) data.points.push_back({report.step, report.Scalar(query.signal)});
    }
    return data;
  }
  // Pages of three. The steps asked for are store/'s own matter.
  absl::StatusOr<engine::ReportPage> Reports(const engine::ReportQuery& query,
                                             const engine::ReportCursor& from) override {
    base::MutexLock lock(mutex_);
    const std::vector<model::Report>& all = reports_[query.run];
    engine::ReportPage page;
    page.attempt = hellos_[query.run].attempt;
    size_t at = static_cast<size_t>(from.report);
    for (; at < all.size() && page.reports.size() < 3; ++at) page.reports.push_back(all[at]);
    page.arrived_unix_ms.assign(page.reports.size(), 0);
    page.next.report = at;
    page.end = at == all.size();
    ++pages_read_;
    return page;
  }
  absl::StatusOr<model::Hello> HelloOf(const std::string& run, const model::AttemptId&) override {
    base::MutexLock lock(mutex_);
    return hellos_[run];
  }
  size_t pages_read() const {
    base::MutexLock lock(mutex_);
    return pages_read_;
  }
  // Rows that no run would make by itself.
  void AddFinding(const std::string& run, FindingRow row) {
    base::MutexLock lock(mutex_);
    findings_[run][row.finding.id] = std::move(row);
  }

 private:
  void Set(bool MemoryStore::*flag, bool value) {
    {
      base::MutexLock lock(mutex_);
      this->*flag = value;
    }
    changed_.NotifyAll();
  }

  void Loop() {
    for (;;) {
      engine::JournalEntry entry;
      bool durable = false;
      {
        base::MutexLock lock(mutex_);
        while (!stop_ && (held_ || entries_.empty())) changed_.Wait(mutex_);
        if (entries_.empty()) return;
        entry = std::move(entries_.front());
        entries_.pop_front();
        durable = !failing_;
        if (durable) Keep(entry);
      }
      if (entry.done) entry.done(durable);
    }
  }

  void Keep(const engine::JournalEntry& entry) GYROSTAT_REQUIRES(mutex_) {
    for (const model::Finding& each : entry.findings) findings_[entry.run][each.id] = {each, entry.attempt};
    for (const engine::EpisodeChange& each : entry.episodes)
      episodes_[entry.run][each.diagnosis.episode] = {each.diagnosis, entry.attempt};
    for (const model::Intervention& each : entry.interventions)
      interventions_[entry.run][each.id] = {each, entry.attempt};
    engine::Event event;
    if (!entry.event.empty() && engine::Decode(entry.event, &event))
      if (const auto* report = std::get_if<engine::ReportEvent>(&event.body))
        reports_[entry.run].push_back(report->report);
    if (entry.hello) hellos_[entry.run] = *entry.hello;
  }

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<engine::JournalEntry> entries_ GYROSTAT_GUARDED_BY(mutex_);
  bool held_ = false, failing_ = false, stalled_ = false, stop_ = false;
  std::map<std::string, std::map<uint64_t, FindingRow>> findings_ GYROSTAT_GUARDED_BY(mutex_);
  std::map<std::string, std::map<uint64_t, EpisodeRow>> episodes_ GYROSTAT_GUARDED_BY(mutex_);
  std::map<std::string, std::map<std::string, InterventionRow>> interventions_ GYROSTAT_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<model::Report>> reports_ GYROSTAT_GUARDED_BY(mutex_);
  std::map<std::string, model::Hello> hellos_ GYROSTAT_GUARDED_BY(mutex_);
  size_t pages_read_ GYROSTAT_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace gyrostat
