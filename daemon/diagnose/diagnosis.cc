#include "diagnose/diagnosis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
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

// Detectors whose first word is of the first step of all.
std::set<std::string> SaidFirst(const std::vector<Finding>& findings) {
  std::set<std::string> detectors;
  for (const Finding& f : findings)
    if (f.step_begin == findings.front().step_begin) detectors.insert(f.detector);
  return detectors;
}

std::vector<Candidate> Rank(const std::vector<Finding>& findings, const Company& company, const model::ModelSpec& spec,
                            bool common_mode) {
  std::array<double, kCauses> weights{};
  std::set<std::pair<Cause, std::string>> counted;  // One word of each detector for a cause: its strongest comes first.
  std::vector<const Finding*> strongest;
  for (const Finding& f : findings) strongest.push_back(&f);
  std::stable_sort(strongest.begin(), strongest.end(),
                   [](const Finding* a, const Finding* b) { return a->severity > b->severity; });
  const std::set<std::string> first = SaidFirst(findings);
  for (const Finding* f : strongest) {
    for (const Vote& vote : VotesOf(*f, company, spec)) {
      if (!counted.insert({vote.cause, f->detector}).second) continue;
      const double loud = f->severity == Severity::kInfo ? 0.5 : f->severity == Severity::kWarning ? 1 : 1.5;
      const double early = first.count(f->detector) != 0 ? 1.5 : 1;
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

bool SpeaksFor(const Finding& f, Cause cause, const Company& company, const model::ModelSpec& spec) {
  const Votes votes = VotesOf(f, company, spec);
  return std::any_of(votes.begin(), votes.end(), [cause](const Vote& v) { return v.cause == cause && v.weight > 0; });
}

// A log may have one maximum a layer: its one "head" is none.
std::string Place(const Diagnosis& d, const model::ModelSpec& spec) {
  std::string text;
  if (d.rank) text += "rank " + std::to_string(*d.rank);
  if (d.layer) text += (text.empty() ? "layer " : ", layer ") + std::to_string(*d.layer);
  if (d.head && spec.heads != 1) text += ", head " + std::to_string(*d.head);
  return text;
}

std::string Evidence(const Finding& f) {
  return f.step_end ? f.message + " Ended at step " + std::to_string(*f.step_end) + "." : f.message;
}

// The first mover, then the worst of each detector in the order of their begin; the others of its kind are counted.
std::vector<std::string> ChooseEvidence(const std::vector<Finding>& findings, const Finding& first) {
  struct Kind {
    const Finding* worst = nullptr;
    uint32_t others = 0;  // Not shown.
    model::Step last = 0;
  };
  std::map<std::string, Kind> kinds;
  for (const Finding& f : findings) {
    Kind& kind = kinds[f.detector];
    if (kind.worst == nullptr || f.severity > kind.worst->severity) kind.worst = &f;
    ++kind.others;
    kind.last = f.step_begin;
  }
  std::vector<const Finding*> chosen;
  for (const auto& [detector, kind] : kinds)
    if (kind.worst != &first) chosen.push_back(kind.worst);
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const Finding* a, const Finding* b) { return a->severity > b->severity; });
  if (chosen.size() > kEvidenceMax - 1) chosen.resize(kEvidenceMax - 1);
  std::stable_sort(chosen.begin(), chosen.end(), [](const Finding* a, const Finding* b) { return Earlier(*a, *b); });
  chosen.insert(chosen.begin(), &first);
  for (const Finding* f : chosen) --kinds.at(f->detector).others;
  std::vector<std::string> evidence;
  for (const Finding* f : chosen) {
    const Kind& kind = kinds.at(f->detector);
    evidence.push_back(Evidence(*f));
    if (kind.others > 0 && f == kind.worst)
      evidence.back() += " " + std::to_string(kind.others) + " more of this kind, the last at step " +
                         std::to_string(kind.last) + ".";
  }
  return evidence;
}

std::string What(const Diagnosis& d, const Company& company) {
  const Cause cause = d.ranked.front().cause;
  if (cause == Cause::kOptimizer && company.gradient_led) return "The gradient norm jumps before the loss does";
  if (cause == Cause::kOptimizer && company.gradient_rough) return "The gradient norm has become rough";
  if (cause != Cause::kBadData) return std::string(Sentence(cause));
  if (company.spikes >= kRecurringSpikes)
    return "Spikes that heal keep coming (" + std::to_string(company.spikes) + " so far)";
  return d.step_end && *d.step_end - d.first_step <= 2 ? "A bad batch" : "Bad batches";
}

void Headline(const std::vector<Finding>& findings, const Company& company, const model::ModelSpec& spec,
              Diagnosis* d) {
  d->headline = What(*d, company);
  const std::string place = Place(*d, spec);
  const bool layers =
      std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return f.layer.has_value(); });
  if (d->common_mode && layers) d->headline += ", everywhere at once";
  else if (!d->common_mode && !place.empty()) d->headline += ", first in " + place;
  const bool healed = d->healed.value_or(false);
  if (d->step_end == d->first_step) {
    d->headline += ", at step " + std::to_string(d->first_step) + (healed ? "; healed." : "; over.");
    return;
  }
  d->headline += ", since step " + std::to_string(d->first_step);
  if (d->step_end) d->headline += (healed ? "; healed by step " : "; over since step ") + std::to_string(*d->step_end);
  d->headline += ".";
}

// An order that the findings themselves ask for knows more (whether the warm-up still runs) than the placement does;
// but none repairs a NaN.
void Advise(const std::vector<Finding>& findings, const Company& company, const model::ModelSpec& spec, Diagnosis* d) {
  const Cause cause = d->ranked.front().cause;
  const Advice general = AdviceFor(cause, company, *d, spec);
  if (d->step_end && d->healed.value_or(false)) {
    d->advice = "It is over, nothing is to be done now.";
    if (cause == Cause::kBadData) d->advice += " " + general.text;
    return;
  }
  d->advice = general.text;
  d->recommend = general.kind;
  const Finding* loudest = nullptr;
  for (const Finding& f : findings)
    if (f.recommend && !f.step_end && SpeaksFor(f, cause, company, spec) &&
        (!loudest || f.severity > loudest->severity))
      loudest = &f;
  if (loudest != nullptr && !company.lasting_nonfinite) {
    d->recommend = loudest->recommend;
    if (d->recommend == model::InterventionKind::kRollback)
      d->advice = "Go back to a checkpoint from before step " + std::to_string(loudest->step_begin) + ". " + d->advice;
  }
  if (d->recommend) d->advice += std::string(" Proposed: ") + model::Token(*d->recommend) + ".";
}

// Over once every warning is; information may last. Where there is nothing but information, all of it counts.
void SetEnd(const std::vector<Finding>& findings, Diagnosis* d) {
  bool over = true, healed = true;
  model::Step last = d->step_begin;
  for (const Finding& f : findings) {
    if (f.severity == Severity::kInfo && d->severity > Severity::kInfo) continue;
    over = over && f.step_end;
    healed = healed && f.healed.value_or(false);
    if (f.step_end) last = std::max(last, *f.step_end);
  }
  if (over) d->step_end = last, d->healed = healed;
}

}  // namespace

Diagnosis Diagnose(const Episode& episode, const model::ModelSpec& spec) {
  std::vector<Finding> findings = episode.findings;
  std::stable_sort(findings.begin(), findings.end(), Earlier);
  Diagnosis d;
  d.episode = episode.id;
  d.closed = episode.closed;
  d.findings = static_cast<uint32_t>(findings.size()) + episode.left_out;
  d.step_begin = findings.front().step_begin;
  d.common_mode = IsCommonMode(findings, spec, d.step_begin);
  const Company company = CompanyOf(findings);
  d.ranked = Rank(findings, company, spec, d.common_mode);
  const Cause cause = d.ranked.front().cause;
  const auto speaks = std::find_if(findings.begin(), findings.end(),
                                   [&](const Finding& f) { return SpeaksFor(f, cause, company, spec); });
  const Finding& first = speaks == findings.end() ? findings.front() : *speaks;
  d.detector = first.detector;
  d.signal = first.signal;
  d.layer = first.layer, d.head = first.head, d.rank = first.rank;
  d.first_step = first.step_begin;
  for (const Finding& f : findings) d.severity = std::max(d.severity, f.severity);
  SetEnd(findings, &d);
  d.evidence = ChooseEvidence(findings, first);
  d.likely = Likely(cause, spec);
  Advise(findings, company, spec, &d);
  Headline(findings, company, spec, &d);
  return d;
}

std::string Diagnosis::LessLikely() const {
  std::string text;
  for (size_t i = 1; i < ranked.size(); ++i) {
    const auto percent = static_cast<int>(std::lround(100 * ranked[i].weight));
    text += text.empty() ? "Less likely: " : "; ";
    text += std::string(Sentence(ranked[i].cause)) + " (" + std::to_string(percent) + " %)";
  }
  return text.empty() ? text : text + ".";
}

std::string Diagnosis::Text() const {
  std::string text = headline + "\n\n" + advice + "\n";
  if (!likely.empty()) text += "\n" + likely + "\n";
  text += "\nEvidence:\n";
  for (const std::string& line : evidence) text += "  - " + line + "\n";
  if (findings > evidence.size()) text += "  - " + std::to_string(findings) + " findings in all.\n";
  if (const std::string less = LessLikely(); !less.empty()) text += "\n" + less + "\n";
  return text;
}

}  // namespace gyrostat::diagnose
