// Findings that belong together: one episode is what a person is paged with once.
//
// The idea: a failure walks through the network, and each detector on its way speaks. What begins while another finding
// is open, or within `join_steps` after the last word of an episode, is taken to be the same event. An episode is over
// when every warning in it has ended and `join_steps` have passed; a later finding then opens another. Information that
// lasts (heads a little over tau for a whole run) keeps none open, or every later event would join it.
//
// Pure: steps are the only clock. Not thread-safe; state can be saved and loaded at any step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/archive.h"
#include "model/finding.h"

namespace gyrostat::diagnose {

struct EpisodeOptions {
  model::Step join_steps = 200;  // A healed spike and what it leads to are one story. [1, 1e9].
  uint32_t findings_max = 256;   // Of one episode; what comes later is counted, not kept. [8, 4096].
  template <class Archive>
  void Fields(Archive& a) { a(join_steps, findings_max); }
};

struct Episode {
  uint64_t id = 0;  // Counts from 1 within a run.
  // Each condition once, in the order in which they were first said: as it was when at its worst, with its end and
  // whether it healed once that was said, and with its first begin where it came back. `detector` and `key` identify a
  // condition.
  std::vector<model::Finding> findings;
  uint32_t left_out = 0;        // Conditions beyond findings_max.
  model::Step last_word = 0;    // Step at which something was last said.
  bool closed = false;

  bool AnyOpen() const;  // Warnings and worse.
  template <class Archive>
  void Fields(Archive& a) { a(id, findings, left_out, last_word, closed); }
};

class EpisodeBook {
 public:
  explicit EpisodeBook(const EpisodeOptions& options) : options_(options) {}

  // Goes on to `step` (steps may repeat or go back after a rollback: what was said before it is then not in the
  // future). Returns whether that closes the current episode. Does not allocate.
  bool Pass(model::Step step);

  // Passes to `step` and takes what detectors said at it. Returns whether the current episode changed: begun, grown, or
  // closed by time. `info` alone opens no episode, but joins one.
  bool Observe(std::span<const model::Finding> said, model::Step step);

  // The current one, or the last; null before the first.
  const Episode* current() const { return current_ ? &*current_ : nullptr; }

  template <class Archive>
  void Fields(Archive& a) { a(options_, current_, early_, next_id_); }

 private:
  void Put(const model::Finding& finding);

  EpisodeOptions options_;
  std::optional<Episode> current_;
  std::vector<model::Finding> early_;  // Information within join_steps, for an episode that may follow.
  uint64_t next_id_ = 1;
};

}  // namespace gyrostat::diagnose
