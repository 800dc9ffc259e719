// A journal in front of the journal: hands on every entry, and tells of those that became durable.
//
// The idea: what was not written did not happen for anybody outside, so the seam is the journal's `done(true)`. Entries
// that failed keep their findings for the run's next snapshot (engine/ports.h), and so does this: they are told with
// it. A word of people that was taken back is told never.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "engine/ports.h"
#include "notify/change.h"

namespace gyrostat::notify {

// Thread-safe. Costs an entry that holds nothing to tell, and no snapshot, a look.
class Tap : public engine::Journal {
 public:
  static constexpr size_t kHeldMax = 1024;  // Changes of a run that wait for its snapshot; then the oldest go.

  // `tell` is called on the journal's thread before the entry's own `done`; it must not block. `journal` outlives this,
  // and this every entry.
  Tap(engine::Journal* journal, std::function<void(Change)> tell) : journal_(journal), tell_(std::move(tell)) {}

  void Append(engine::JournalEntry entry) override;

 private:
  void Settle(const std::string& run, std::optional<Change> change, bool durable, bool revocable);

  engine::Journal* const journal_;
  const std::function<void(Change)> tell_;
  base::Mutex mutex_;
  std::map<std::string, std::deque<Change>> held_ GYROSTAT_GUARDED_BY(mutex_);  // By run.
};

}  // namespace gyrostat::notify
