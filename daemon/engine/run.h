// One run: its attempts, the order of its reports, its detectors and its policy, as a deterministic state machine.
//
// Apply(event) returns everything that must be journalled and then sent. No clock, thread, lock or I/O: time comes with
// the event. Not thread-safe: a run belongs to one shard thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/episodes.h"
#include "engine/event.h"
#include "engine/run_options.h"
#include "engine/views.h"
#include "model/finding.h"
#include "policy/run_policy.h"

namespace gyrostat::engine {

// The effects of one event. Findings carry ids; a finding whose id was seen before is its new state.
struct RunOutput {
  // False: a repeat, a refusal or a tick without effect; the state is as before and there is nothing to journal.
  bool changed = false;
  // Why an event was refused (bad shape, unknown id, foreign attempt). A refused event may still have `changed` the
  // run: that a superseded attempt speaks is remembered.
  absl::Status status;
  std::vector<model::Finding> findings;  // The policy's too.
  std::vector<EpisodeChange> episodes;   // At most two: one closed, then one begun or grown.
  policy::PolicyOutput policy;           // Orders leave only once all of this is journalled.
  uint64_t acknowledge_sequence = 0;     // Reports of this attempt up to here are in; 0: nothing to say.
  model::AttemptId ended_attempt;        // Meaningful where ended_reason is not empty.
  std::string ended_reason;
  void Clear();
};

class Run {
 public:
  // `number` is the run's own within the data directory; finding ids are made from it (engine/finding_book.h).
  Run(std::string name, uint64_t number, const RunOptions& options);
  ~Run();

  // Applies one event; stamps never go back (one that does counts as the latest seen). Overwrites `*out`. Reports with
  // a sequence already seen in the attempt are repeats: changed = false, but acknowledged.
  void Apply(const Event& event, RunOutput* out);

  const std::string& name() const;
  uint64_t number() const;
  const RunOptions& options() const;
  const model::AttemptId& attempt() const;
  uint64_t last_sequence() const;  // Reports of this attempt up to here are in; 0: none.
  model::Mode mode() const;
  int64_t last_mono_ms() const;  // Of the newest event that changed something.
  RunState View() const;         // A copy for readers on other threads.

  std::string Save() const;
  // Takes name, number, options and state from what Save wrote. False on foreign bytes or another version; the run is
  // then as new.
  bool Load(std::string_view bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gyrostat::engine
