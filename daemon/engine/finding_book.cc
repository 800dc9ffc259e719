#include "engine/finding_book.h"

#include <algorithm>

namespace gyrostat::engine {

void FindingBook::Take(model::Finding finding, std::vector<model::Finding>* out) {
  const std::pair<std::string, uint64_t> key{finding.detector, finding.key};
  const auto it = open_.find(key);
  if (it == open_.end()) {
    finding.id = run_number_ * kFindingsPerRun + ++count_;
    Count(finding);
  } else {
    finding.id = it->second.id;
    finding.episode = it->second.episode;
    if (finding.severity > it->second.severity) Count(finding);
  }
  if (finding.step_end) {
    if (it != open_.end()) open_.erase(it);
  } else {
    open_[key] = finding;
  }
  out->push_back(std::move(finding));
}

void FindingBook::End(std::string_view detector, model::Step step, std::vector<model::Finding>* out) {
  for (auto it = open_.begin(); it != open_.end();) {
    if (it->first.first != detector) {
      ++it;
      continue;
    }
    model::Finding finding = std::move(it->second);
    finding.step_end = std::max(step, finding.step_begin);
    out->push_back(std::move(finding));
    it = open_.erase(it);
  }
}

void FindingBook::Forget(std::string_view detector) {
  std::erase_if(open_, [detector](const auto& each) { return each.first.first == detector; });
}

void FindingBook::SetEpisode(const model::Finding& finding) {
  const auto it = open_.find({finding.detector, finding.key});
  if (it != open_.end() && it->second.id == finding.id) it->second.episode = finding.episode;
}

std::vector<model::Finding> FindingBook::Open() const {
  std::vector<model::Finding> open;
  open.reserve(open_.size());
  for (const auto& [key, finding] : open_) open.push_back(finding);
  std::ranges::sort(open, {}, &model::Finding::id);
  return open;
}

void FindingBook::Count(const model::Finding& finding) {
  ++totals_[finding.detector + "/" + model::Token(finding.severity)];
}

}  // namespace gyrostat::engine
