// What `gyrostatctl mode --all` left behind for runs to come: the mode above which no new run begins. Thread-safe.
//
// It outlives reloads and restarts, because it is in the journal, and only another word of an operator changes it. A
// word that stops holds at once, and is written again and again until the journal keeps it; one that lets more happen
// holds once it is on disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "engine/ports.h"

namespace gyrostat::engine {

class ModeLimit {
 public:
  // What a restart found.
  void Restore(const ModeWord& word) GYROSTAT_EXCLUDES(mutex_);

  std::optional<ModeWord> Get() const GYROSTAT_EXCLUDES(mutex_);
  // The mode in which a run begins where the configuration says `configured`.
  model::Mode Apply(model::Mode configured) const GYROSTAT_EXCLUDES(mutex_);

  // Somebody's new word, before the journal is asked: says under which number to settle it.
  uint64_t Ask(const ModeWord& word) GYROSTAT_EXCLUDES(mutex_);
  // The journal's answer. True: the word holds now, whether or not it is on disk. A newer word makes an older one's
  // answer meaningless.
  bool Settle(uint64_t number, const ModeWord& word, bool durable) GYROSTAT_EXCLUDES(mutex_);

  // The word that holds and is not on disk, once: the caller appends and settles it again.
  struct Unsaved {
    uint64_t number = 0;
    ModeWord word;
  };
  std::optional<Unsaved> TakeUnsaved() GYROSTAT_EXCLUDES(mutex_);

 private:
  mutable base::Mutex mutex_;
  std::optional<ModeWord> word_ GYROSTAT_GUARDED_BY(mutex_);  // The one that holds.
  uint64_t asked_ GYROSTAT_GUARDED_BY(mutex_) = 0, holds_ GYROSTAT_GUARDED_BY(mutex_) = 0;
  bool unsaved_ GYROSTAT_GUARDED_BY(mutex_) = false;
};

// What is answered when the journal could not keep a mode: ABORTED, with what `holds`. `what`: "run r", say.
absl::Status ModeNotKept(const std::string& what, model::Mode mode, bool holds);

}  // namespace gyrostat::engine
