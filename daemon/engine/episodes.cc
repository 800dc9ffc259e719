#include "engine/episodes.h"

#include <algorithm>
#include <utility>

namespace gyrostat::engine {

void Episodes::Take(model::Step step, const model::ModelSpec& spec, std::vector<model::Finding>* said,
                    FindingBook* open, std::vector<EpisodeChange>* changes) {
  if (book_.Pass(step)) changes->push_back(Changed(spec));
  const uint64_t before = book_.current() == nullptr ? 0 : book_.current()->id;
  if (!book_.Observe(*said, step)) return;
  EpisodeChange change = Changed(spec);
  for (model::Finding& finding : *said) {
    finding.episode = change.diagnosis.episode;
    open->SetEpisode(finding);
  }
  if (book_.current()->id != before) {
    for (model::Finding finding : book_.current()->findings) {
      if (finding.episode != 0 || std::ranges::find(*said, finding.id, &model::Finding::id) != said->end()) continue;
      change.joined.push_back(finding.id);
      finding.episode = change.diagnosis.episode;
      open->SetEpisode(finding);
    }
  }
  changes->push_back(std::move(change));
}

EpisodeChange Episodes::Changed(const model::ModelSpec& spec) {
  EpisodeChange change;
  change.diagnosis = diagnose::Diagnose(*book_.current(), spec);
  change.diagnosis.episode = run_number_ * kEpisodesPerRun + book_.current()->id;
  newest_ = change.diagnosis;
  return change;
}

}  // namespace gyrostat::engine
