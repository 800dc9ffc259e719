#include "engine/mode_limit.h"

#include <algorithm>
#include <utility>

namespace gyrostat::engine {

void ModeLimit::Restore(const ModeWord& word) {
  base::MutexLock lock(mutex_);
  word_ = word;
}

std::optional<ModeWord> ModeLimit::Get() const {
  base::MutexLock lock(mutex_);
  return word_;
}

model::Mode ModeLimit::Apply(model::Mode configured) const {
  base::MutexLock lock(mutex_);
  return word_ ? std::min(configured, word_->mode) : configured;
}

uint64_t ModeLimit::Ask(const ModeWord& word) {
  base::MutexLock lock(mutex_);
  ++asked_;
  const model::Mode limit = word_ ? word_->mode : model::Mode::kAct;
  if (word.mode == model::Mode::kObserve || word.mode < limit) {
    word_ = word;
    holds_ = asked_;
    unsaved_ = false;  // Until the journal has failed it too.
  }
  return asked_;
}

bool ModeLimit::Settle(uint64_t number, const ModeWord& word, bool durable) {
  base::MutexLock lock(mutex_);
  if (durable && number == asked_) {
    word_ = word;
    holds_ = number;
  }
  if (number != holds_) return false;
  unsaved_ = !durable;
  return true;
}

std::optional<ModeLimit::Unsaved> ModeLimit::TakeUnsaved() {
  base::MutexLock lock(mutex_);
  if (!std::exchange(unsaved_, false)) return std::nullopt;
  return Unsaved{holds_, *word_};
}

absl::Status ModeNotKept(const std::string& what, model::Mode mode, bool holds) {
  return absl::AbortedError(what + ": mode " + model::Token(mode) +
                            (holds ? " holds now, but is not on disk yet" : " is not set") +
                            ": the journal could not keep it; see the daemon's log");
}

}  // namespace gyrostat::engine
