#include "notify/seen.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace gyrostat::notify {
namespace {

constexpr Kind kFinding[] = {Kind::kFindingRaised, Kind::kFindingWorsened, Kind::kFindingResolved};
constexpr Kind kSilence[] = {Kind::kRunSilent, Kind::kFindingWorsened, Kind::kRunBack};
constexpr Kind kEpisode[] = {Kind::kEpisodeOpened, Kind::kEpisodeWorsened, Kind::kEpisodeClosed};

// The n of "RUN/n"; 0: it has none.
uint64_t NumberOf(const std::string& intent_id) {
  const size_t slash = intent_id.rfind('/');
  uint64_t number = 0;
  if (slash != std::string::npos)
    std::from_chars(intent_id.data() + slash + 1, intent_id.data() + intent_id.size(), number);
  return number;
}

Notice About(const Change& change, std::string subject, model::Severity severity, model::Step step) {
  Notice notice;
  notice.subject = std::move(subject);
  notice.run = change.run;
  notice.attempt = change.attempt;
  notice.unix_ms = notice.begun_unix_ms = change.unix_ms;
  notice.severity = notice.severity_before = severity;
  notice.step = step;
  return notice;
}

model::Severity SeverityOf(const model::Intervention& intent, Kind kind) {
  switch (kind) {
    case Kind::kInterventionWaiting: return model::Severity::kWarning;
    case Kind::kInterventionFailed:
    case Kind::kInterventionHarmful: return model::Severity::kCritical;
    default:
      return kind == Kind::kInterventionJudged && intent.outcome == model::Outcome::kIneffective
                 ? model::Severity::kWarning
                 : model::Severity::kInfo;
  }
}

bool Failed(model::InterventionState state) {
  return state == model::InterventionState::kRefused || state == model::InterventionState::kForeign ||
         state == model::InterventionState::kLost;
}

template <class Map>
void Trim(Map* open) {
  while (open->size() > Seen::kOpenMax) open->erase(open->begin());
}

}  // namespace

void Seen::Take(const Change& change, std::vector<Notice>* out) {
  if (change.run_number != run_number_) {
    *this = Seen();
    run_number_ = change.run_number;
  }
  for (const model::Finding& each : change.findings) TakeFinding(change, each, out);
  for (const diagnose::Diagnosis& each : change.episodes) TakeEpisode(change, each, out);
  for (const model::Intervention& each : change.interventions) TakeIntent(change, each, out);
  if (!change.ended_reason.empty()) TakeEnd(change, out);
}

void Seen::TakeState(uint64_t id, Notice notice, bool over, const Kind (&kinds)[3], uint64_t* high, OpenOnes* open,
                     std::vector<Notice>* out) {
  auto it = open->find(id);
  if (it == open->end()) {
    if (id <= *high) return;
    *high = id;
    it = open->emplace(id, Open{notice.severity, notice.unix_ms}).first;
    notice.kind = kinds[0];
    out->push_back(notice);
  } else if (notice.severity > it->second.severity) {
    notice.kind = kinds[1];
    notice.severity_before = std::exchange(it->second.severity, notice.severity);
    notice.begun_unix_ms = it->second.unix_ms;
    out->push_back(notice);
  }
  if (over) {
    notice.kind = kinds[2];
    notice.severity = notice.severity_before = it->second.severity;
    notice.begun_unix_ms = it->second.unix_ms;
    out->push_back(std::move(notice));
    open->erase(it);
  }
  Trim(open);
}

void Seen::TakeFinding(const Change& change, const model::Finding& finding, std::vector<Notice>* out) {
  Notice notice = About(change, "finding/" + std::to_string(finding.id), finding.severity,
                        finding.step_end ? std::max(finding.step_detected, *finding.step_end) : finding.step_detected);
  notice.finding = finding;
  TakeState(finding.id, std::move(notice), finding.step_end.has_value(),
            finding.detector == "silence" ? kSilence : kFinding, &findings_high_, &findings_, out);
}

void Seen::TakeEpisode(const Change& change, const diagnose::Diagnosis& episode, std::vector<Notice>* out) {
  Notice notice = About(change, "episode/" + std::to_string(episode.episode), episode.severity,
                        episode.closed ? episode.step_end.value_or(episode.step_begin) : episode.step_begin);
  notice.episode = episode;
  TakeState(episode.episode, std::move(notice), episode.closed, kEpisode, &episodes_high_, &episodes_, out);
}

void Seen::TakeIntent(const Change& change, const model::Intervention& intent, std::vector<Notice>* out) {
  const uint64_t number = NumberOf(intent.id);
  if (number <= intents_high_ && intents_.count(number) == 0) return;
  intents_high_ = std::max(intents_high_, number);
  Intent& told = intents_[number];
  const auto tell = [&](Kind kind) {
    Notice notice = About(change, "intervention/" + intent.id, SeverityOf(intent, kind),
                          kind == Kind::kInterventionApplied ? intent.step_applied.value_or(intent.step_proposed)
                                                             : intent.step_proposed);
    notice.kind = kind;
    notice.intervention = intent;
    out->push_back(std::move(notice));
  };
  if (intent.state == model::InterventionState::kProposed && !std::exchange(told.waiting, true))
    tell(Kind::kInterventionWaiting);
  if ((intent.orders_applied > 0 || intent.state == model::InterventionState::kApplied) &&
      !std::exchange(told.applied, true))
    tell(Kind::kInterventionApplied);
  if (Failed(intent.state)) tell(Kind::kInterventionFailed);
  if (intent.outcome && !std::exchange(told.judged, true))
    tell(intent.outcome == model::Outcome::kHarmful ? Kind::kInterventionHarmful : Kind::kInterventionJudged);
  if (!model::IsOpen(intent.state)) intents_.erase(number);
  Trim(&intents_);
}

void Seen::TakeEnd(const Change& change, std::vector<Notice>* out) {
  if (EndedWith(change.ended_attempt)) return;
  ended_ = true;
  ended_attempt_ = change.ended_attempt;
  Notice notice = About(change, "run/" + std::to_string(run_number_) + "/" + change.ended_attempt.ToHex(),
                        model::Severity::kInfo, 0);
  notice.kind = Kind::kRunEnded;
  notice.attempt = change.ended_attempt;
  notice.reason = change.ended_reason;
  out->push_back(std::move(notice));
}

}  // namespace gyrostat::notify
