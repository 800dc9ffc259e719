// One page for an episode: what, where first, since when, why, what now.
//
// Candidates are causes; each finding speaks for some of them with a weight (table in diagnosis.cc), more when it is
// severe and when it came early. What the placement is prone to weighs more, what it cannot have weighs less
// (model/architecture.h). Data move all layers, a fault few: findings that name places in most layers, or only global
// signals that jump at one step and heal, speak for the data (methods.md §10.4). A broken instrument comes first: what
// rests on signals that cannot be right is no evidence.
//
// Pure; thread-safe; the same findings and spec give the same text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/episode.h"
#include "model/architecture.h"
#include "model/model_spec.h"

namespace gyrostat::diagnose {

// Do not change the values: they reach wire and disk.
enum class Cause : uint8_t {
  kUnknown = 0,
  kPostNormCollapse = 1, kSlowDivergence = 2, kAttentionLogits = 3, kOutputLogits = 4, kHalfOverflow = 5,
  kDeadDepth = 6,
  kBadData = 7,        // One or a few batches; heals by itself.
  kRank = 8,           // One rank: its data, its hardware, or weights that are no replica's.
  kInstrument = 9,     // The signals cannot be right.
  kLossScale = 10,     // The fp16 loss scale has collapsed.
  kOptimizer = 11,     // Update sizes, or gradients near Adam's epsilon.
  kNumeric = 12,       // NaN or Inf without a forerunner.
  kSilence = 13,       // The job no longer reports.
  kIntervention = 14,  // Orders that fail, come too late, or do not help.
};
const char* Token(Cause v);

struct Candidate {
  Cause cause = Cause::kUnknown;
  double weight = 0;  // Share of all candidates' weight. (0, 1].
  template <class Archive>
  void Fields(Archive& a) { a(cause, weight); }
};

struct Diagnosis {
  uint64_t episode = 0;
  bool closed = false;     // Nothing joins it any more (diagnose/episode.h).
  uint32_t findings = 0;   // Conditions that belong to it, also those that it no longer keeps.
  std::vector<Candidate> ranked;  // Best first, at most 3; never empty.
  model::Severity severity = model::Severity::kInfo;  // The worst of the findings.
  model::Step step_begin = 0;
  std::optional<model::Step> step_end;  // When all of it is over.
  std::optional<bool> healed;           // False: over, but not by itself; nothing: not over.
  // Who moved first: the earliest finding that speaks for the best cause.
  std::string detector;
  model::Signal signal = model::Signal::kNone;
  std::optional<uint32_t> layer, head, rank;
  model::Step first_step = 0;
  bool common_mode = false;  // It moved everywhere at once.
  std::optional<model::InterventionKind> recommend;
  std::string headline;               // One line: what, where first, since when.
  std::vector<std::string> evidence;  // The findings' own sentences, first mover first, at most 6.
  std::string likely;                 // What this placement makes of it.
  std::string advice;                 // What now, or why nothing.

  // "Less likely: ...", or empty where there is only one candidate.
  std::string LessLikely() const;
  // All of it as a few short paragraphs for a tired person, without markup.
  std::string Text() const;

  template <class Archive>
  void Fields(Archive& a) {
    a(episode, closed, findings, ranked, severity, step_begin, step_end, healed, detector, signal, layer, head, rank,
      first_step, common_mode, recommend, headline, evidence, likely, advice);
  }
};

// The episode must hold at least one finding.
Diagnosis Diagnose(const Episode& episode, const model::ModelSpec& spec);

}  // namespace gyrostat::diagnose
