// The episodes of one run: which finding belongs to which, and the diagnosis of the newest.
//
// Pure; not thread-safe. Only the newest episode is kept here; older ones are in the journal.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/archive.h"
#include "diagnose/diagnosis.h"
#include "diagnose/episode.h"
#include "engine/finding_book.h"
#include "model/finding.h"
#include "model/model_spec.h"

namespace gyrostat::engine {

// The n-th episode of run r is called r * kEpisodesPerRun + n: unique in the data directory as long as a run has fewer
// than a hundred thousand; each lasts 200 steps or more.
inline constexpr uint64_t kEpisodesPerRun = 100'000;

// The new state of an episode.
struct EpisodeChange {
  diagnose::Diagnosis diagnosis;
  // Ids of findings that were said before the episode began and belong to it. Those of the event at hand carry its id
  // themselves.
  std::vector<uint64_t> joined;
};

class Episodes {
 public:
  explicit Episodes(uint64_t run_number) : run_number_(run_number) {}

  // Takes what one event said, ids given, and writes into each finding the id of its episode, here and in `open`: the
  // newest in which it was spoken of. Appends to `*changes` what has changed: the episode that the steps since have
  // closed, then the one that began or grew. Allocates nothing where nothing was said and nothing has changed.
  void Take(model::Step step, const model::ModelSpec& spec, std::vector<model::Finding>* said, FindingBook* open,
            std::vector<EpisodeChange>* changes);

  // The newest, running or closed; nothing before the first.
  const std::optional<diagnose::Diagnosis>& newest() const { return newest_; }

  template <class Archive>
  void Fields(Archive& a) { a(run_number_, book_, newest_); }

 private:
  EpisodeChange Changed(const model::ModelSpec& spec);

  uint64_t run_number_;
  diagnose::EpisodeBook book_{diagnose::EpisodeOptions()};
  std::optional<diagnose::Diagnosis> newest_;
};

}  // namespace gyrostat::engine
