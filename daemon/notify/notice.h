// One thing that a person is told: plain values, made from what the journal has kept (seen.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/archive.h"
#include "diagnose/diagnosis.h"
#include "model/finding.h"
#include "model/ids.h"
#include "model/intervention.h"

namespace gyrostat::notify {

// Do not change the values: they reach disk.
enum class Kind : uint8_t {
  kFindingRaised = 1, kFindingWorsened = 2, kFindingResolved = 3,
  kEpisodeOpened = 4, kEpisodeWorsened = 5, kEpisodeClosed = 6,
  kInterventionWaiting = 7,  // For an answer of a person.
  kInterventionApplied = 8, kInterventionFailed = 9,  // Refused by the job, foreign to it, or lost with it.
  kInterventionJudged = 10, kInterventionHarmful = 11,
  kRunSilent = 12, kRunBack = 13, kRunEnded = 14,  // The first two are findings of the detector silence.
  kTest = 15,  // Asked for by a person; never filtered.
};
inline constexpr Kind kKinds[] = {
    Kind::kFindingRaised, Kind::kFindingWorsened, Kind::kFindingResolved, Kind::kEpisodeOpened, Kind::kEpisodeWorsened,
    Kind::kEpisodeClosed, Kind::kInterventionWaiting, Kind::kInterventionApplied, Kind::kInterventionFailed,
    Kind::kInterventionJudged, Kind::kInterventionHarmful, Kind::kRunSilent, Kind::kRunBack, Kind::kRunEnded};
const char* Token(Kind kind);  // finding_raised …

struct Notice {
  Kind kind = Kind::kTest;
  // What it is about: "finding/10000003", "episode/100001", "intervention/RUN/4", "run/1/ATTEMPT".
  std::string subject;
  std::string run;
  model::AttemptId attempt;
  int64_t unix_ms = 0;        // When the daemon saw it.
  int64_t begun_unix_ms = 0;  // Of what is over: when it was first told. Else as unix_ms.
  model::Step step = 0;
  model::Severity severity = model::Severity::kInfo;         // Of what is over: the worst that it was.
  model::Severity severity_before = model::Severity::kInfo;  // Of what worsened.
  // One of these, or none.
  std::optional<model::Finding> finding;
  std::optional<diagnose::Diagnosis> episode;
  std::optional<model::Intervention> intervention;
  std::string reason;         // Of a run that ended.

  // The same whenever the same thing is told again: "finding/10000003/raised".
  std::string Id() const;
  bool IsOver() const;  // Says the end of its subject.

  template <class Archive>
  void Fields(Archive& a) {
    a(kind, subject, run, attempt, unix_ms, begun_unix_ms, step, severity, severity_before, finding, episode,
      intervention, reason);
  }
};

}  // namespace gyrostat::notify
