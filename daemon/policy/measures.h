// Measures: interventions of every kind but qk_clip. A measure is an intent (design.md §6) of which at most one of a
// kind is open; it sets registers of the client by one order, seldom two. Everything the policy knows about them on one
// run, as one value that can be saved. The functions that work on it: measure_rules.h (may it?), measure_plan.h (with
// what numbers?), measure_flow.h (how it begins, is judged and ends), measure_orders.h (what became of its orders),
// resumption.h (a resume that lost them), collecting.h.
//
// Pure; not thread-safe; bounded: one measure a kind, 8 orders that have ended, 64 recommendations, 200 levels a gauge.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/finding.h"
#include "policy/effect.h"
#include "policy/gauge.h"
#include "policy/proposal.h"
#include "policy/ration.h"
#include "policy/register_mirror.h"
#include "policy/run_policy.h"
#include "remedy/warmup.h"

namespace gyrostat::policy {

// A finding that is open and recommends a measure, or the diagnosis of the episode that does.
struct Recommendation {
  std::string detector;  // "episode" where it is the diagnosis.
  uint64_t key = 0;
  model::InterventionKind kind = model::InterventionKind::kLrScale;
  model::Severity severity = model::Severity::kInfo;
  model::Signal signal = model::Signal::kNone;
  model::Step step_begin = 0;
  std::string message;
  template <class Archive>
  void Fields(Archive& a) { a(detector, key, kind, severity, signal, step_begin, message); }
};

struct Measure {
  model::Intervention view;
  uint64_t number = 0;
  std::string opening;         // The sentence it opened with; view.reason is this and what came of it.
  std::string verdict;
  bool by_person = false;      // Approved by somebody.
  Proposal wish;               // What is bound; the numbers come from the freshest report when it is sent.
  std::optional<remedy::Ray> again = {};  // Not a new plan but this ray once more (protocol.md §6.4).
  std::string detector;        // Of what called for it, with `key`; empty: a person did.
  uint64_t key = 0;
  Gauge gauge = Gauge::kLoss;  // What it is judged by.
  std::optional<model::Order> out = {};  // Sent, and not answered yet.
  bool companion_done = false;           // deepnorm_alpha: the learning rate is held down already.
  uint32_t late = 0;                     // Orders that expired.
  RunTime active_at = 0;                 // When it opened, was approved, or its recommendation was last seen.
  RunTime applied_at = 0;
  model::Boundary skip_boundary = 0;     // skip_step: which one.
  EffectWatch effect;

  template <class Archive>
  void Fields(Archive& a) {
    a(view, number, opening, verdict, by_person, wish, again, detector, key, gauge, out, companion_done, late,
      active_at, applied_at, skip_boundary, effect);
  }
};

// One kind on one run.
struct KindBook {
  std::optional<Measure> open;
  uint32_t failures = 0;     // Measures that were ineffective or harmful.
  std::string disabled;      // Why the kind is off for the run; empty: it is not.
  RunTime paused_until = 0;
  std::string why_paused;
  uint32_t refusals = 0;     // In a row.
  std::string said;          // What the last decision was about; numbers in its sentence may have changed since.
  template <class Archive>
  void Fields(Archive& a) { a(open, failures, disabled, paused_until, why_paused, refusals, said); }
};

// An order that has ended, for a word about it that comes late or twice.
struct EndedOrder {
  model::Order order;
  uint64_t number = 0;  // Of its measure.
  bool counted = true;  // Somebody told how it ended.
  template <class Archive>
  void Fields(Archive& a) { a(order, number, counted); }
};

// A ray that a resume has left behind, in the boundaries of the attempt that knew it.
struct LostRay {
  remedy::Ray ray;
  int64_t step_minus_boundary = 0;
  template <class Archive>
  void Fields(Archive& a) { a(ray, step_minus_boundary); }
};

struct Measures {
  static constexpr size_t kKinds = 11;  // By number of the kind; 0 and qk_clip stay empty.
  static constexpr size_t kEndedMax = 8, kRecommendationsMax = 64;

  std::array<KindBook, kKinds> kinds;
  std::vector<Recommendation> recommended;
  std::optional<model::Step> episode_since;  // First step of the first mover of the episode that is open.
  RegisterMirror registers;
  remedy::LrEnvelope envelope;   // As the client's, as far as acks tell.
  GaugeHistory gauges;
  std::deque<EndedOrder> ended;  // Latest last.
  std::deque<model::Intervention> past;  // Measures that ended lately, for a word that comes late. Latest last.
  std::optional<LostRay> lost;
  RunTime changed_at = 0;        // Last change of the run by a measure; 0: none.
  uint64_t reports = 0;          // Since the attempt or epoch began.
  model::Boundary boundary = 0;  // Of the newest report, with the next two.
  model::Step step = 0;
  std::optional<double> rate;    // The learning rate, where reported.
  uint32_t logits_gap = 0;       // Boundaries between the last two reports with attention maxima; 0: not known.
  model::Boundary logits_at = 0;
  std::optional<uint32_t> collect_before;  // What the job measured at before it was asked for more.

  KindBook& of(model::InterventionKind kind) { return kinds[static_cast<size_t>(kind) % kKinds]; }
  const KindBook& of(model::InterventionKind kind) const { return kinds[static_cast<size_t>(kind) % kKinds]; }
  // The open one with this number or id, or null.
  Measure* Find(uint64_t number);
  Measure* Find(const std::string& id);
  // The loudest recommendation of the kind, or null.
  const Recommendation* For(model::InterventionKind kind) const;
  // Whether what called for the measure is still open; nothing where nothing did.
  std::optional<bool> StillThere(const Measure& measure) const;

  template <class Archive>
  void Fields(Archive& a) {
    a(kinds, recommended, episode_since, registers, envelope, gauges, ended, past, lost, changed_at, reports, boundary,
      step, rate, logits_gap, logits_at, collect_before);
  }
};

// What the daemon found in a report, or otherwise: keeps the recommendations that stand.
void TakeFindings(std::span<const model::Finding> said, const EpisodeNow& episode, Measures* m);

// A report: where the run stands, and the levels of its gauges.
Levels TakeReport(const model::Report& report, Measures* m);

// Whether the kind asks the loop for something instead of changing the run: checkpoint, rollback, halt, collect.
bool IsRequest(model::InterventionKind kind);

// All kinds of measures but collect, in the order in which a report is answered.
std::span<const model::InterventionKind> MeasureKinds();

}  // namespace gyrostat::policy
