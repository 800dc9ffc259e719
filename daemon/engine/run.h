// One run: its attempts, the order of its reports, its detectors and its policy, as a deterministic state machine.
//
// Apply(event) returns everything that must be journalled and then sent. No clock, thread, lock or I/O: time comes with the
// event. Not thread-safe: a run belongs to one shard thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "detect/catalog.h"
#include "engine/event.h"
#include "engine/views.h"
#include "model/finding.h"
#include "policy/run_policy.h"

namespace gyrostat::engine {

struct RunOptions {
  detect::DetectOptions detect;
  policy::PolicyOptions policy;
};

// The effects of one event. Findings carry ids; a finding whose id was seen before is its new state.
struct RunOutput {
  bool changed = false;         // False: a repeat or a tick without effect; nothing to journal.
  absl::Status status;          // Why an event was refused (bad shape, unknown id, foreign attempt); state is unchanged.
  std::vector<model::Finding> findings;
  policy::PolicyOutput policy;  // Orders leave only once all of this is journalled.
  uint64_t acknowledge_sequence = 0;  // Reports of this attempt up to here are in; 0: nothing to say.
  void Clear();
};

class Run {
 public:
  // `first_finding_id`: ids are given upwards from here through `*next_finding_id`, shared by the shard's runs.
  Run(std::string name, RunOptions options);
  ~Run();

  // Applies one event. Reports with a sequence already seen in the attempt are repeats: changed = false, but acknowledged.
  void Apply(const Event& event, RunOutput* out);

  void SetOptions(const RunOptions& options, RunOutput* out);

  const std::string& name() const;
  RunState View() const;  // A copy for readers on other threads.

  std::string Save() const;
  // False on foreign bytes or another version; the run is then as new.
  bool Load(std::string_view bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gyrostat::engine
