// One thread and the runs it owns: applies their events, hands the effects to the journal, and once they are durable to
// the outbox. Only engine.cc uses it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "engine/board.h"
#include "engine/engine.h"
#include "engine/mode_limit.h"
#include "engine/ports.h"
#include "engine/run.h"

namespace gyrostat::engine {

// Thresholds that may change while shards run. Thread-safe.
class SharedOptions {
 public:
  explicit SharedOptions(const RunOptions& options) : options_(options) {}
  void Set(const RunOptions& options) GYROSTAT_EXCLUDES(mutex_);
  RunOptions Get() const GYROSTAT_EXCLUDES(mutex_);
  // Rises with each Set: a shard compares it with what it saw last.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  mutable base::Mutex mutex_;
  RunOptions options_ GYROSTAT_GUARDED_BY(mutex_);
  std::atomic<uint64_t> version_{1};
};

// Counts entries that the journal has not settled. Thread-safe.
class InFlight {
 public:
  void Begin() GYROSTAT_EXCLUDES(mutex_);
  void End() GYROSTAT_EXCLUDES(mutex_);
  void WaitForNone() GYROSTAT_EXCLUDES(mutex_);

 private:
  base::Mutex mutex_;
  base::CondVar none_;
  uint64_t count_ GYROSTAT_GUARDED_BY(mutex_) = 0;
};

// What all shards of an engine share. Set up before the first shard starts.
struct Common {
  Common(const EngineOptions& engine_options, Journal* the_journal, Outbox* the_outbox, const base::Clock* the_clock)
      : options(engine_options), journal(the_journal), outbox(the_outbox), clock(the_clock), started(clock->Now()),
        run_options(engine_options.run) {}

  Stamp Now() const;

  const EngineOptions options;
  Journal* const journal;
  Outbox* const outbox;
  const base::Clock* const clock;
  const base::MonotonicTime started;
  int64_t mono_base_ms = 0;  // What the stamps of earlier lives have reached. Set by Restore.
  std::atomic<uint64_t> run_number_next{1};
  SharedOptions run_options;
  ModeLimit mode_limit;
  Board board;
  Probe probe;
  InFlight in_flight;
};

class Shard {
 public:
  // A word about runs to come, and its number (mode_limit.h).
  struct LimitWork {
    uint64_t number = 0;
    ModeWord word;
  };
  struct Work {
    std::string run;  // Empty with a LimitWork.
    std::variant<EventBody, LimitWork> body;
    Engine::Done done;
  };
  enum class Duty { kRuns, kRunsAndLimit };  // One shard writes the words about runs to come.

  Shard(Common* common, Duty duty);

  // Before Start. `replayed`: events applied since the stored snapshot.
  void Adopt(std::unique_ptr<Run> run, size_t replayed);
  void Start();
  // False when the queue is full or closed; `done` is then not called.
  bool TryPost(Work work) { return queue_.TryPush(std::move(work)); }
  // No more work is taken; what waits is applied, on the shard's thread or, if it never started, on this one.
  void Stop();

 private:
  // A run and what the journal knows of it. Never moves or goes once made: `done` callbacks point to it.
  struct Slot {
    std::unique_ptr<Run> run;
    size_t reports_since_snapshot = 0, events_since_snapshot = 0;
    bool dirty = false;  // Its view is older than its state.
    bool asked = false;  // A word of words_ waits for the journal.
    std::atomic<bool> snapshot_wanted{true};  // The journal has a hole (or nothing yet): only a snapshot mends it.
  };

  // Somebody's word that must not count before it is on disk. Its run stands still until the journal has answered;
  // where that is no, the run is what it was before.
  struct Word {
    Slot* const slot;
    const std::string before;     // Run::Save.
    const absl::Status not_done;  // What is answered then.
    const std::vector<model::Order> orders;
    const Engine::Done done;
    bool durable;
  };

  void Loop();
  void Process(Work work);
  void Tick();
  void AddLimit(uint64_t number, const ModeWord& word, Engine::Done done);
  void TakeOptions();
  Slot* FindOrMake(const std::string& run, const EventBody& body);
  // Applies a word and leaves it in words_, to be settled before anything else happens to the run.
  void ApplyWord(Slot* slot, EventBody body, Engine::Done done);
  void SettleWords();  // Waits for the journal.
  void Publish(Slot* slot);
  // Applies one event, which leaves its effects in out_ and, if there is something to write, an entry in entries_.
  void Apply(Slot* slot, EventBody body, Engine::Done done);
  void CountReport() const;
  // Queues an entry with the effects in out_. `event` may be null: only the answer, or a snapshot, is wanted.
  void AddEntry(Slot* slot, const Event* event, std::function<void(bool)> settled);
  // What happens on the journal's thread to all but words: acknowledgement, orders, `done`.
  std::function<void(bool)> Settled(Slot* slot, const EventBody* body, Engine::Done done) const;
  bool SnapshotDue(const Slot& slot) const;
  // Publishes the views of what changed, then gives the entries to the journal: whoever is told of an event sees it.
  void Flush();

  Common* const common_;
  const Duty duty_;
  base::BoundedQueue<Work> queue_;
  std::map<std::string, Slot> slots_;
  uint64_t options_version_ = 0;       // Of common_->run_options, as last given to the runs.
  RunOutput out_;                      // Reused.
  std::vector<JournalEntry> entries_;  // Of the batch at hand.
  std::deque<Word> words_;             // Of runs that stand still. The journal's thread writes `durable`.
  InFlight words_in_flight_;
  std::thread thread_;
};

}  // namespace gyrostat::engine
