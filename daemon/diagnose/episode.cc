#include "diagnose/episode.h"

#include <algorithm>

namespace gyrostat::diagnose {
namespace {

bool SameCondition(const model::Finding& a, const model::Finding& b) {
  return a.key == b.key && a.detector == b.detector;
}

// What is said again of a condition. The last words say that it is over; what it was is in the words before.
void Renew(const model::Finding& said, model::Finding* known) {
  if (said.step_end) {
    known->step_end = said.step_end;
    known->healed = said.healed;
    known->severity = said.severity;
    return;
  }
  const model::Step first = known->step_end ? std::min(known->step_begin, said.step_begin) : said.step_begin;
  *known = said;
  known->step_begin = first;
}

}  // namespace

bool Episode::AnyOpen() const {
  return std::any_of(findings.begin(), findings.end(), [](const model::Finding& f) {
    return !f.step_end && f.severity > model::Severity::kInfo;
  });
}

bool EpisodeBook::Pass(model::Step step) {
  for (model::Finding& f : early_)
    if (f.step_end) f.step_end = std::min(*f.step_end, step);
  std::erase_if(early_, [&](const model::Finding& f) {
    return f.step_end && step - *f.step_end >= options_.join_steps;
  });
  if (!current_ || current_->closed) return false;
  current_->last_word = std::min(current_->last_word, step);
  current_->closed = step - current_->last_word >= options_.join_steps && !current_->AnyOpen();
  return current_->closed;
}

bool EpisodeBook::Observe(std::span<const model::Finding> said, model::Step step) {
  bool changed = Pass(step);
  for (const model::Finding& finding : said) {
    const bool running = current_ && !current_->closed;
    if (!running && finding.severity == model::Severity::kInfo) {
      const auto at = std::find_if(early_.begin(), early_.end(),
                                   [&finding](const model::Finding& f) { return SameCondition(f, finding); });
      if (at != early_.end()) Renew(finding, &*at);
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
  } else {
    Renew(finding, &*at);
  }
}

}  // namespace gyrostat::diagnose
