#include "diagnose/episode.h"

#include <algorithm>

namespace gyrostat::diagnose {
namespace {

bool SameCondition(const model::Finding& a, const model::Finding& b) {
  return a.key == b.key && a.detector == b.detector;
}

}  // namespace

bool Episode::AnyOpen() const {
  return std::any_of(findings.begin(), findings.end(), [](const model::Finding& f) { return !f.step_end; });
}

bool EpisodeBook::Observe(std::span<const model::Finding> said, model::Step step) {
  bool changed = false;
  // After a rollback steps run again: what was said before it is not in the future.
  const auto passed = [this, step](model::Step since) { return step - since >= options_.join_steps; };
  if (current_ && !current_->closed && !current_->AnyOpen() && passed(current_->last_word))
    current_->closed = changed = true;
  std::erase_if(early_, [&passed](const model::Finding& f) { return f.step_end && passed(*f.step_end); });
  for (const model::Finding& finding : said) {
    const bool running = current_ && !current_->closed;
    if (!running && finding.severity == model::Severity::kInfo) {
      const auto at = std::find_if(early_.begin(), early_.end(),
                                   [&finding](const model::Finding& f) { return SameCondition(f, finding); });
      if (at != early_.end()) *at = finding;
      else if (early_.size() < options_.findings_max) early_.push_back(finding);
      continue;
    }
    if (!running) {
      current_.emplace();
      current_->id = next_id_++;
      for (const model::Finding& before : early_)
        if (!SameCondition(before, finding)) Put(before);
      early_.clear();
    }
    Put(finding);
    current_->last_word = step;
    changed = true;
  }
  return changed;
}

void EpisodeBook::Put(const model::Finding& finding) {
  std::vector<model::Finding>& all = current_->findings;
  const auto at = std::find_if(all.begin(), all.end(),
                               [&finding](const model::Finding& f) { return SameCondition(f, finding); });
  if (at == all.end()) {
    if (all.size() < options_.findings_max) all.push_back(finding);
    else ++current_->left_out;
  } else if (finding.step_end) {
    // The last words say that it is over; what it was is in the words before.
    at->step_end = finding.step_end;
    at->healed = finding.healed;
    at->severity = finding.severity;
  } else {
    *at = finding;
  }
}

}  // namespace gyrostat::diagnose
