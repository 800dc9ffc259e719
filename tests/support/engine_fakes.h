// The world as the engine sees it: a journal that settles when the test says so, and an outbox that remembers.
// Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/ports.h"

namespace gyrostat::testing {

inline constexpr std::chrono::seconds kPatience{300};

// Waits for a condition that other threads make true; false after kPatience, which only what hangs meets.
class Signal {
 public:
  // Runs `change` and wakes those who wait.
  void Change(const std::function<void()>& change) {
    base::MutexLock lock(mutex_);
    change();
    changed_.NotifyAll();
  }
  bool WaitUntil(const std::function<bool()>& condition) {
    const auto deadline = base::SystemClock().Now() + kPatience;
    base::MutexLock lock(mutex_);
    while (!condition()) {
      if (base::SystemClock().Now() >= deadline) return false;
      changed_.WaitUntil(mutex_, deadline);
    }
    return true;
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
};

// Keeps the order in which entries came; obeys the rule of engine/ports.h about holes.
class FakeJournal : public engine::Journal {
 public:
  enum class Answer { kYes, kNo, kWait };  // kWait: until Settle.

  void Append(engine::JournalEntry entry) override {
    Answer answer = Answer::kWait;
    signal_.Change([&] {
      answer = answer_;
      entries_.push_back(std::move(entry));
    });
    if (answer != Answer::kWait) Settle(answer == Answer::kYes);
  }
  // What waits is answered so too, unless it shall go on waiting.
  void SetAnswer(Answer answer) {
    signal_.Change([&] { answer_ = answer; });
    if (answer != Answer::kWait) Settle(answer == Answer::kYes);
  }
  // Answers everything that waits.
  void Settle(bool durable) {
    const std::lock_guard<std::mutex> in_order(settling_);
    std::vector<std::function<void(bool)>> waiting;
    signal_.Change([&] {
      for (; settled_ < entries_.size(); ++settled_) waiting.push_back(std::move(entries_[settled_].done));
      if (durable) kept_ += waiting.size();
    });
    for (const auto& done : waiting) done(durable);
  }
  bool WaitForEntries(size_t count) {
    return signal_.WaitUntil([&] { return entries_.size() >= count; });
  }
  // Entries that were answered with yes.
  size_t kept() {
    size_t count = 0;
    signal_.Change([&] { count = kept_; });
    return count;
  }
  bool WaitForKept(size_t count) {
    return signal_.WaitUntil([&] { return kept_ >= count; });
  }
  // Copies, without their `done`.
  std::vector<engine::JournalEntry> entries() {
    std::vector<engine::JournalEntry> copy;
    signal_.Change([&] { copy = entries_; });
    return copy;
  }

 private:
  std::mutex settling_;  // Entries of a run are answered in their order, whichever thread gets to it.
  Signal signal_;
  Answer answer_ = Answer::kYes;
  std::vector<engine::JournalEntry> entries_;
  size_t settled_ = 0, kept_ = 0;
};

class FakeOutbox : public engine::Outbox {
 public:
  void SendOrder(const model::Order& order) override {
    signal_.Change([&] { orders_.push_back(order); });
  }
  void Acknowledge(const std::string& run, const model::AttemptId&, uint64_t sequence) override {
    signal_.Change([&] { acknowledged_.emplace_back(run, sequence); });
  }
  std::vector<model::Order> orders() {
    std::vector<model::Order> copy;
    signal_.Change([&] { copy = orders_; });
    return copy;
  }
  std::vector<std::pair<std::string, uint64_t>> acknowledged() {
    std::vector<std::pair<std::string, uint64_t>> copy;
    signal_.Change([&] { copy = acknowledged_; });
    return copy;
  }

 private:
  Signal signal_;
  std::vector<model::Order> orders_;
  std::vector<std::pair<std::string, uint64_t>> acknowledged_;
};

// Stored runs, as a restart finds them.
class FakeHistory : public engine::History {
 public:
  std::vector<engine::StoredRun> runs;
  absl::Status status;  // Returned after the runs.
  std::optional<engine::ModeWord> limit;

  absl::Status ForEachRun(const std::function<absl::Status(engine::StoredRun)>& take) override {
    for (const engine::StoredRun& run : runs)
      if (absl::Status each = take(run); !each.ok()) return each;
    return status;
  }
  absl::StatusOr<std::optional<engine::ModeWord>> ModeLimit() override { return limit; }
  absl::StatusOr<std::vector<FindingRow>> Findings(const std::string&) override { return std::vector<FindingRow>(); }
  absl::StatusOr<std::vector<EpisodeRow>> Episodes(const std::string&) override { return std::vector<EpisodeRow>(); }
  absl::StatusOr<std::vector<InterventionRow>> Interventions(const std::string&) override {
    return std::vector<InterventionRow>();
  }
  absl::StatusOr<engine::SeriesData> Series(const engine::SeriesQuery&) override {
    return engine::SeriesData();
  }
  absl::StatusOr<engine::ReportPage> Reports(const engine::ReportQuery&, const engine::ReportCursor&) override {
    engine::ReportPage page;
    page.end = true;
    return page;
  }
  absl::StatusOr<model::Hello> HelloOf(const std::string& run, const model::AttemptId&) override {
    return absl::NotFoundError("run " + run + " has no such attempt");
  }
};

// Posts, and gives what `done` will say.
inline std::future<absl::Status> PostAsync(engine::Engine* engine, const std::string& run, engine::EventBody body) {
  const auto answer = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> status = answer->get_future();
  engine->Post(run, std::move(body), [answer](const absl::Status& s) { answer->set_value(s); });
  return status;
}

inline absl::Status Await(std::future<absl::Status> status) {
  if (status.wait_for(kPatience) != std::future_status::ready)
    return absl::DeadlineExceededError("no answer");
  return status.get();
}

inline absl::Status PostAndWait(engine::Engine* engine, const std::string& run, engine::EventBody body) {
  return Await(PostAsync(engine, run, std::move(body)));
}

}  // namespace gyrostat::testing
