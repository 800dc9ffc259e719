// Shards of runs, one thread each: rpc/ posts events, the shard applies them, the journal keeps them, the outbox tells.
//
// Path of one report: rpc thread → Post → shard queue → Run::Apply → Journal::Append → (durable) → Outbox.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/event.h"
#include "engine/ports.h"
#include "engine/probe.h"
#include "engine/run.h"
#include "engine/views.h"

namespace gyrostat::engine {

struct EngineOptions {
  uint32_t shards = 2;                     // Threads. [1, 64].
  uint32_t queue_capacity_events = 4096;   // Per shard; full: refused, and the client sends it again. [16, 1e6].
  uint32_t runs_max = 1024;                // Not ended. More are refused with RESOURCE_EXHAUSTED. [1, 100000].
  uint32_t snapshot_every_reports = 64;    // [1, 10000].
  base::Milliseconds tick{500};            // How often silence is looked at.
  RunOptions run;
};

// Thread-safe.
class Engine {
 public:
  // All pointers outlive the engine.
  Engine(EngineOptions options, Journal* journal, Outbox* outbox, const base::Clock* clock);
  ~Engine();  // Stops.

  // Brings stored runs back: snapshot, then the events since, with their effects discarded (they are journalled).
  // Before Start. A run whose state cannot be read is logged and left alone in the store: its next hello makes it anew.
  absl::Status Restore(History* history);
  void Start();
  // Applies what is queued, waits until the journal has settled all of it, then ends the threads. Idempotent.
  void Stop();

  // Queues an event. `done` (may be null) is called exactly once: with the outcome of Apply once its effects are
  // durable, with UNAVAILABLE if the journal failed or the engine has stopped, or with RESOURCE_EXHAUSTED at once when
  // the queue or the number of runs is full. People (mode, propose, approve, reject) hear ABORTED if the journal
  // failed: then it was not done, but for a mode that stops, which holds and is written later; the text says which.
  // `done` may be called on any thread and must not block. By then the effects have been handed to the outbox, in the
  // order: acknowledgement (of a hello too: what the attempt need not send again), orders. A HelloEvent makes the run;
  // every other event on an unknown run answers NOT_FOUND.
  using Done = std::function<void(const absl::Status&)>;
  void Post(const std::string& run, EventBody body, Done done);

  // Copies of the newest state, by name. NOT_FOUND names the run.
  std::vector<std::shared_ptr<const RunState>> Runs() const;
  absl::StatusOr<std::shared_ptr<const RunState>> FindRun(const std::string& run) const;
  // The run that owns an intent id ("<run>/<number>").
  static std::string RunOfIntent(const std::string& intent_id);

  // Names of all runs, also of those whose first hello is on its way.
  std::vector<std::string> RunNames() const;

  // Config reload: thresholds for all runs, and the mode in which new ones begin. A run that is there keeps its mode.
  void SetRunOptions(const RunOptions& options);
  RunOptions run_options() const;

  // `mode --all`, as far as it is about runs to come: none begins in a mode above `word.mode` any more, whatever the
  // configuration says, until another word. Stopping holds when this returns; letting more happen holds once durable.
  // `done` as in Post; ABORTED says which mode holds when the journal could not keep the word.
  void SetModeLimit(ModeWord word, Done done);
  std::optional<ModeWord> mode_limit() const;
  model::Mode start_mode() const;  // Of new runs: the configuration's, or the limit where that is lower.

  Probe& probe();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gyrostat::engine
