// Findings, episodes and intents to tell of.
#pragma once

#include <string>

#include "notify/change.h"
#include "notify/notice.h"
#include "support/plain_run.h"

namespace gyrostat::testing {

inline model::Finding FindingOf(uint64_t id, model::Severity severity = model::Severity::kWarning) {
  model::Finding finding;
  finding.id = id;
  finding.detector = "attn_logit";
  finding.severity = severity;
  finding.signal = model::Signal::kAttnLogitMax;
  finding.layer = 3;
  finding.head = 1;
  finding.step_begin = 10;
  finding.step_detected = 12;
  finding.value = 250;
  finding.expected = 100;
  finding.message = "Layer 3 head 1 stands at 250.";
  return finding;
}
inline model::Finding Ended(model::Finding finding, model::Step step = 30) {
  finding.step_end = step;
  finding.healed = true;
  return finding;
}

inline diagnose::Diagnosis EpisodeOf(uint64_t id, model::Severity severity = model::Severity::kWarning) {
  diagnose::Diagnosis episode;
  episode.episode = id;
  episode.findings = 2;
  episode.ranked = {{diagnose::Cause::kAttentionLogits, 1.0}};
  episode.severity = severity;
  episode.step_begin = 10;
  episode.headline = "Attention logits run away, first in layer 3.";
  episode.advice = "Clip the head.";
  return episode;
}

inline model::Intervention IntentOf(const std::string& id, model::InterventionState state) {
  model::Intervention intent;
  intent.id = id;
  intent.state = state;
  intent.reason = "1 head is above tau.";
  intent.step_proposed = 12;
  return intent;
}

inline notify::Change ChangeOf(const std::string& run = "run") {
  notify::Change change;
  change.run = run;
  change.run_number = 1;
  change.attempt = IdOf(1);
  change.unix_ms = 1'700'000'000'000;
  return change;
}

// As Seen would make it.
inline notify::Notice NoticeOf(uint64_t id, notify::Kind kind = notify::Kind::kFindingRaised,
                               const std::string& run = "run", model::Severity severity = model::Severity::kWarning) {
  notify::Notice notice;
  notice.kind = kind;
  notice.subject = "finding/" + std::to_string(id);
  notice.run = run;
  notice.attempt = IdOf(1);
  notice.unix_ms = notice.begun_unix_ms = 1'700'000'000'000;
  notice.severity = notice.severity_before = severity;
  notice.finding = FindingOf(id, severity);
  return notice;
}

}  // namespace gyrostat::testing
