#include "policy/measures.h"

#include <algorithm>
#include <cmath>

namespace gyrostat::policy {
namespace {

using model::InterventionKind;

// What only a diagnosis knows: one finding alone does not tell a fault of the hardware from one of the run.
bool ComesFromDiagnosis(InterventionKind kind) {
  return kind == InterventionKind::kCheckpoint || kind == InterventionKind::kRollback ||
         kind == InterventionKind::kHalt;
}

void Keep(Recommendation fresh, bool stands, std::vector<Recommendation>* all) {
  const auto same = [&fresh](const Recommendation& r) { return r.detector == fresh.detector && r.key == fresh.key; };
  const auto it = std::find_if(all->begin(), all->end(), same);
  if (!stands) {
    if (it != all->end()) all->erase(it);
  } else if (it != all->end()) {
    *it = std::move(fresh);
  } else if (all->size() < Measures::kRecommendationsMax) {
    all->push_back(std::move(fresh));
  }
}

}  // namespace

Measure* Measures::Find(uint64_t number) {
  for (KindBook& book : kinds)
    if (book.open && book.open->number == number) return &*book.open;
  return nullptr;
}

Measure* Measures::Find(const std::string& id) {
  for (KindBook& book : kinds)
    if (book.open && book.open->view.id == id) return &*book.open;
  return nullptr;
}

const Recommendation* Measures::For(InterventionKind kind) const {
  const Recommendation* loudest = nullptr;
  for (const Recommendation& each : recommended)
    if (each.kind == kind && (loudest == nullptr || each.severity > loudest->severity)) loudest = &each;
  return loudest;
}

std::optional<bool> Measures::StillThere(const Measure& measure) const {
  if (measure.detector.empty()) return std::nullopt;
  return std::any_of(recommended.begin(), recommended.end(), [&measure](const Recommendation& r) {
    return r.detector == measure.detector && r.key == measure.key;
  });
}

void TakeFindings(std::span<const model::Finding> said, const EpisodeNow& episode, Measures* m) {
  for (const model::Finding& f : said) {
    const bool stands = f.recommend && *f.recommend != InterventionKind::kQkClip && !f.step_end;
    Keep({.detector = f.detector,
          .key = f.key,
          .kind = f.recommend.value_or(InterventionKind::kLrScale),
          .severity = f.severity,
          .signal = f.signal,
          .step_begin = f.step_begin,
          .message = f.message},
         stands, &m->recommended);
  }
  m->episode_since = episode.since;
  const bool asks = episode.since && episode.recommend && ComesFromDiagnosis(*episode.recommend);
  Keep({.detector = "episode",
        .kind = episode.recommend.value_or(InterventionKind::kLrScale),
        .severity = model::Severity::kWarning,
        .step_begin = episode.since.value_or(0),
        .message = episode.headline},
       asks, &m->recommended);
}

Levels TakeReport(const model::Report& report, Measures* m) {
  m->boundary = report.boundary;
  m->step = report.step;
  ++m->reports;
  m->rate.reset();
  const double rate = report.Scalar(model::Signal::kLearningRate);
  if (report.Has(model::Signal::kLearningRate) && std::isfinite(rate) && rate >= 0) m->rate = rate;
  return m->gauges.Observe(report);
}

bool IsRequest(InterventionKind kind) {
  return kind == InterventionKind::kCheckpoint || kind == InterventionKind::kRollback ||
         kind == InterventionKind::kHalt || kind == InterventionKind::kCollect;
}

std::span<const InterventionKind> MeasureKinds() {
  static constexpr InterventionKind kAll[] = {
      InterventionKind::kCheckpoint, InterventionKind::kWarmupExtension, InterventionKind::kDeepnormAlpha,
      InterventionKind::kLrScale,    InterventionKind::kGradClip,        InterventionKind::kSkipStep,
      InterventionKind::kRollback,   InterventionKind::kHalt};
  return kAll;
}

}  // namespace gyrostat::policy
