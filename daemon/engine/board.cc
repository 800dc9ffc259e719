#include "engine/board.h"

#include <algorithm>
#include <utility>

namespace gyrostat::engine {

Board::Claim Board::TakeName(const std::string& run, size_t runs_max) {
  base::MutexLock lock(mutex_);
  if (views_.contains(run)) return Claim::kKnown;
  const auto not_ended = std::ranges::count_if(
      views_, [](const auto& each) { return each.second == nullptr || each.second->life != RunLife::kEnded; });
  const size_t all_max = runs_max * (1 + kEndedPerLive);
  if (static_cast<size_t>(not_ended) >= runs_max || views_.size() >= all_max) return Claim::kFull;
  views_.emplace(run, nullptr);
  return Claim::kNew;
}

void Board::DropName(const std::string& run) {
  base::MutexLock lock(mutex_);
  const auto it = views_.find(run);
  if (it != views_.end() && it->second == nullptr) views_.erase(it);
}

bool Board::HasName(const std::string& run) const {
  base::MutexLock lock(mutex_);
  return views_.contains(run);
}

std::vector<std::string> Board::Names() const {
  std::vector<std::string> names;
  base::MutexLock lock(mutex_);
  for (const auto& [name, view] : views_) names.push_back(name);
  return names;
}

void Board::Publish(std::shared_ptr<const RunState> view) {
  base::MutexLock lock(mutex_);
  std::swap(views_[view->run], view);  // The old view is freed by the caller's argument, outside the lock.
}

std::vector<std::shared_ptr<const RunState>> Board::All() const {
  std::vector<std::shared_ptr<const RunState>> all;
  base::MutexLock lock(mutex_);
  for (const auto& [name, view] : views_)
    if (view != nullptr) all.push_back(view);
  return all;
}

std::shared_ptr<const RunState> Board::Find(const std::string& run) const {
  base::MutexLock lock(mutex_);
  const auto it = views_.find(run);
  return it == views_.end() ? nullptr : it->second;
}

}  // namespace gyrostat::engine
