#include "diagnose/diagnosis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "diagnose/causes.h"

namespace gyrostat::diagnose {
namespace {

using model::Finding;
using model::Severity;

constexpr size_t kRankedMax = 3;
constexpr size_t kEvidenceMax = 6;
// What begins within so many steps of the first is the same step for a common mode.
constexpr model::Step kTogetherSteps = 8;
// Fewer layers are not everywhere, however few there are.
constexpr size_t kEverywhereLayersMin = 4;

bool Earlier(const Finding& a, const Finding& b) {
  if (a.step_begin != b.step_begin) return a.step_begin < b.step_begin;
  return a.severity > b.severity;
}

// Findings that name most of the layers around one step, or that name none and are over.
bool IsCommonMode(const std::vector<Finding>& findings, const model::ModelSpec& spec, model::Step first) {
  std::set<uint32_t> layers;
  bool global_only = true;
  for (const Finding& f : findings) {
    if (f.layer || f.rank) global_only = false;
    if (f.layer && f.step_begin - first <= kTogetherSteps) layers.insert(*f.layer);
  }
  if (global_only)
    return std::all_of(findings.begin(), findings.end(), [](const Finding& f) { return f.healed.value_or(false); });
  return layers.size() >= kEverywhereLayersMin && layers.size() * 4 >= size_t{spec.layers} * 3;
}

std::vector<Candidate> Rank(const std::vector<Finding>& findings, const model::ModelSpec& spec, bool common_mode) {
  std::array<double, kCauses> weights{};
  std::set<std::pair<Cause, std::string>> counted;  // One word of each detector for a cause: its strongest comes first.
  std::vector<const Finding*> strongest;
  for (const Finding& f : findings) strongest.push_back(&f);
  std::stable_sort(strongest.begin(), strongest.end(),
                   [](const Finding* a, const Finding* b) { return a->severity > b->severity; });
  const model::Step first = findings.front().step_begin;
  for (const Finding* f : strongest) {
    for (const Vote& vote : VotesOf(*f, spec)) {
      if (!counted.insert({vote.cause, f->detector}).second) continue;
      const double loud = f->severity == Severity::kInfo ? 0.5 : f->severity == Severity::kWarning ? 1 : 1.5;
      const double early = f->step_begin == first ? 1.5 : 1;
      weights[static_cast<size_t>(vote.cause)] += vote.weight * loud * early;
    }
  }
  std::vector<Candidate> ranked;
  double sum = 0;
  for (size_t i = 0; i < kCauses; ++i) {
    const auto cause = static_cast<Cause>(i);
    const double weight = weights[i] * Prior(cause, spec) * (common_mode && cause == Cause::kBadData ? 1.5 : 1);
    if (weight > 0) ranked.push_back({cause, weight});
    sum += weight;
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const Candidate& a, const Candidate& b) {
    return a.weight > b.weight;
  });
  if (ranked.empty()) return {{Cause::kUnknown, 1}};
  for (Candidate& candidate : ranked) candidate.weight /= sum;
  if (ranked.size() > kRankedMax) ranked.resize(kRankedMax);
  return ranked;
}

bool SpeaksFor(const Finding& f, Cause cause, const model::ModelSpec& spec) {
  const Votes votes = VotesOf(f, spec);
  return std::any_of(votes.begin(), votes.end(), [cause](const Vote& v) { return v.cause == cause && v.weight > 0; });
}

std::string Place(const Diagnosis& d) {
  std::string text;
  if (d.rank) text += "rank " + std::to_string(*d.rank);
  if (d.layer) text += (text.empty() ? "layer " : ", layer ") + std::to_string(*d.layer);
  if (d.head) text += ", head " + std::to_string(*d.head);
  return text;
}

std::string Evidence(const Finding& f) {
  return f.step_end ? f.message + " Over since step " + std::to_string(*f.step_end) + "." : f.message;
}

void Headline(Diagnosis* d) {
  d->headline = std::string(Sentence(d->ranked.front().cause));
  const std::string place = Place(*d);
  if (d->common_mode) d->headline += ", everywhere at once";
  else if (!place.empty()) d->headline += ", first in " + place;
  d->headline += ", since step " + std::to_string(d->first_step);
  if (d->step_end) {
    d->headline += d->healed.value_or(false) ? "; healed by step " : "; over since step ";
    d->headline += std::to_string(*d->step_end);
  }
  d->headline += ".";
}

// An order that the findings themselves ask for knows more (whether the warm-up still runs) than the placement does.
void Advise(const Episode& episode, const model::ModelSpec& spec, Diagnosis* d) {
  const Cause cause = d->ranked.front().cause;
  const Advice general = AdviceFor(cause, *d, spec);
  d->advice = general.text;
  if (d->step_end && d->healed.value_or(false)) {
    d->advice = "It is over, nothing is to be done now. " + d->advice;
    return;
  }
  d->recommend = general.kind;
  const Finding* loudest = nullptr;
  for (const Finding& f : episode.findings)
    if (f.recommend && !f.step_end && SpeaksFor(f, cause, spec) && (!loudest || f.severity > loudest->severity))
      loudest = &f;
  if (loudest != nullptr) d->recommend = loudest->recommend;
  if (d->recommend) d->advice += std::string(" Proposed: ") + model::Token(*d->recommend) + ".";
}

}  // namespace

Diagnosis Diagnose(const Episode& episode, const model::ModelSpec& spec) {
  std::vector<Finding> findings = episode.findings;
  std::stable_sort(findings.begin(), findings.end(), Earlier);
  Diagnosis d;
  d.episode = episode.id;
  d.step_begin = findings.front().step_begin;
  d.common_mode = IsCommonMode(findings, spec, d.step_begin);
  d.ranked = Rank(findings, spec, d.common_mode);
  const Cause cause = d.ranked.front().cause;
  const auto speaks = std::find_if(findings.begin(), findings.end(),
                                   [&](const Finding& f) { return SpeaksFor(f, cause, spec); });
  const Finding& first = speaks == findings.end() ? findings.front() : *speaks;
  d.detector = first.detector;
  d.signal = first.signal;
  d.layer = first.layer, d.head = first.head, d.rank = first.rank;
  d.first_step = first.step_begin;
  bool over = true, healed = true;
  model::Step last = d.step_begin;
  for (const Finding& f : findings) {
    d.severity = std::max(d.severity, f.severity);
    over = over && f.step_end;
    healed = healed && f.healed.value_or(false);
    if (f.step_end) last = std::max(last, *f.step_end);
  }
  if (over) d.step_end = last, d.healed = healed;
  d.evidence.push_back(Evidence(first));
  for (const Finding& f : findings)
    if (&f != &first && d.evidence.size() < kEvidenceMax) d.evidence.push_back(Evidence(f));
  d.likely = Likely(cause, spec);
  Advise(episode, spec, &d);
  Headline(&d);
  return d;
}

std::string Diagnosis::Text() const {
  std::string text = headline + "\n\n" + advice + "\n";
  if (!likely.empty()) text += "\n" + likely + "\n";
  text += "\nEvidence:\n";
  for (const std::string& line : evidence) text += "  - " + line + "\n";
  if (ranked.size() > 1) {
    text += "\nLess likely:";
    for (size_t i = 1; i < ranked.size(); ++i) {
      const int percent = static_cast<int>(std::lround(100 * ranked[i].weight));
      text += std::string(i > 1 ? ";" : "") + " " + std::string(Sentence(ranked[i].cause)) + " (" +
              std::to_string(percent) + " %)";
    }
    text += ".\n";
  }
  return text;
}

}  // namespace gyrostat::diagnose
