#include "notify/notice.h"

namespace gyrostat::notify {

const char* Token(Kind kind) {
  switch (kind) {
    case Kind::kFindingRaised: return "finding_raised";
    case Kind::kFindingWorsened: return "finding_worsened";
    case Kind::kFindingResolved: return "finding_resolved";
    case Kind::kEpisodeOpened: return "episode_opened";
    case Kind::kEpisodeWorsened: return "episode_worsened";
    case Kind::kEpisodeClosed: return "episode_closed";
    case Kind::kInterventionWaiting: return "intervention_waiting";
    case Kind::kInterventionApplied: return "intervention_applied";
    case Kind::kInterventionFailed: return "intervention_failed";
    case Kind::kInterventionJudged: return "intervention_judged";
    case Kind::kInterventionHarmful: return "intervention_harmful";
    case Kind::kRunSilent: return "run_silent";
    case Kind::kRunBack: return "run_back";
    case Kind::kRunEnded: return "run_ended";
    case Kind::kTest: return "test";
  }
  return "unknown";
}

std::string Notice::Id() const {
  std::string id = subject + "/" + Token(kind);
  // What worsens can do so twice.
  if (kind == Kind::kFindingWorsened || kind == Kind::kEpisodeWorsened) id += std::string("/") + model::Token(severity);
  return id;
}

bool Notice::IsOver() const {
  return kind == Kind::kFindingResolved || kind == Kind::kEpisodeClosed || kind == Kind::kRunBack ||
         kind == Kind::kRunEnded;
}

}  // namespace gyrostat::notify
