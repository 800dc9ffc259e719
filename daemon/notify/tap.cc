#include "notify/tap.h"

#include <memory>
#include <utility>

namespace gyrostat::notify {

void Tap::Append(engine::JournalEntry entry) {
  std::optional<Change> change = ChangeOf(entry);
  if (change || entry.snapshot) {
    entry.done = [this, run = entry.run, change = std::move(change), revocable = entry.revocable,
                  done = std::move(entry.done)](bool durable) mutable {
      Settle(run, std::move(change), durable, revocable);
      if (done) done(durable);
    };
  }
  journal_->Append(std::move(entry));
}

void Tap::Settle(const std::string& run, std::optional<Change> change, bool durable, bool revocable) {
  std::deque<Change> now;
  {
    base::MutexLock lock(mutex_);
    if (durable) {
      if (const auto held = held_.find(run); held != held_.end()) {
        now = std::move(held->second);
        held_.erase(held);
      }
    } else if (change && !revocable) {
      std::deque<Change>& held = held_[run];
      held.push_back(std::move(*change));
      if (held.size() > kHeldMax) held.pop_front();
    }
  }
  for (Change& each : now) tell_(std::move(each));
  if (durable && change) tell_(*std::move(change));
}

}  // namespace gyrostat::notify
