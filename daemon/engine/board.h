// Where shards post the newest view of each run, and which run names are taken. Thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "engine/views.h"

namespace gyrostat::engine {

class Board {
 public:
  enum class Claim { kKnown, kNew, kFull };

  // Runs that have ended, for each that may be live: they stay in memory, so they need a bound of their own.
  static constexpr size_t kEndedPerLive = 8;

  // Takes `run` as a name unless it is there already, `runs_max` names of runs that have not ended are, or so many
  // ended ones that memory would not be bounded.
  Claim TakeName(const std::string& run, size_t runs_max) GYROSTAT_EXCLUDES(mutex_);
  // Gives back a name that TakeName called new and nothing was published for.
  void DropName(const std::string& run) GYROSTAT_EXCLUDES(mutex_);
  bool HasName(const std::string& run) const GYROSTAT_EXCLUDES(mutex_);

  std::vector<std::string> Names() const GYROSTAT_EXCLUDES(mutex_);  // All that are taken.

  // Takes the name too, whatever their number is: what is stored is there.
  void Publish(std::shared_ptr<const RunState> view) GYROSTAT_EXCLUDES(mutex_);

  // By name. A name without a view yet is left out, and null.
  std::vector<std::shared_ptr<const RunState>> All() const GYROSTAT_EXCLUDES(mutex_);
  std::shared_ptr<const RunState> Find(const std::string& run) const GYROSTAT_EXCLUDES(mutex_);

 private:
  mutable base::Mutex mutex_;
  std::map<std::string, std::shared_ptr<const RunState>> views_ GYROSTAT_GUARDED_BY(mutex_);
};

}  // namespace gyrostat::engine
