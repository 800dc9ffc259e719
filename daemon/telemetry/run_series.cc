#include "telemetry/run_series.h"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "model/signal.h"

namespace gyrostat::telemetry {
namespace {

using model::Signal;
using prometheus::ClientMetric;

// A histogram is a series per bucket, +Inf, sum and count.
constexpr uint32_t kHistogramSeries = static_cast<uint32_t>(std::size(engine::kAttnLogitBuckets)) + 3;

// Every kind, state and outcome there is, for counters that exist from the first scrape on.
using model::InterventionKind;
using model::InterventionState;
using model::Outcome;
using model::Severity;
constexpr auto kKinds = {
    InterventionKind::kQkClip,     InterventionKind::kWarmupExtension, InterventionKind::kDeepnormAlpha,
    InterventionKind::kLrScale,    InterventionKind::kGradClip,        InterventionKind::kSkipStep,
    InterventionKind::kCheckpoint, InterventionKind::kRollback,        InterventionKind::kHalt,
    InterventionKind::kCollect};
constexpr auto kStates = {
    InterventionState::kProposed, InterventionState::kApproved, InterventionState::kSent,
    InterventionState::kApplied,  InterventionState::kJudged,   InterventionState::kRefused,
    InterventionState::kVoid,     InterventionState::kExpired,  InterventionState::kSuperseded,
    InterventionState::kForeign,  InterventionState::kLost,     InterventionState::kRejected,
    InterventionState::kWithdrawn};
constexpr auto kOutcomes = {Outcome::kEffective, Outcome::kIneffective, Outcome::kHarmful, Outcome::kInconclusive};
constexpr auto kSeverities = {Severity::kInfo, Severity::kWarning, Severity::kCritical};

// Counts by "first/second": all pairs of the two lists at 0, then what was counted.
using PairCounts = std::map<std::string, uint64_t>;

std::string Joined(std::string_view a, std::string_view b) { return std::string(a) + "/" + std::string(b); }

template <class First, class Second>
PairCounts ZeroKinds(const First& first, const Second& second) {
  PairCounts counts;
  for (const auto a : first)
    for (const auto b : second) counts[Joined(Token(a), Token(b))] = 0;
  return counts;
}

PairCounts ZeroDetectors(std::span<const std::string> detectors) {
  PairCounts counts;
  for (const std::string& detector : detectors)
    for (const Severity severity : kSeverities) counts[Joined(detector, Token(severity))] = 0;
  return counts;
}

// Writes samples of one run until the budget is used up.
class RunWriter {
 public:
  RunWriter(const std::string& run, uint32_t budget, std::vector<prometheus::MetricFamily>* families)
      : run_(run), budget_(budget), families_(families) {}

  using Labels = std::initializer_list<std::pair<const char*, std::string>>;

  void Write(MetricId id, double value, Labels labels = {}) {
    if (model::IsAbsent(value)) return;
    ClientMetric* sample = Add(id, labels, 1);
    if (sample == nullptr) return;
    sample->gauge.value = value;
    sample->counter.value = value;
  }

  void WritePairs(MetricId id, const char* first, const char* second, const PairCounts& counts) {
    for (const auto& [pair, count] : counts) {
      const size_t slash = pair.find('/');
      if (slash == std::string::npos) continue;
      Write(id, static_cast<double>(count), {{first, pair.substr(0, slash)}, {second, pair.substr(slash + 1)}});
    }
  }

  void WriteLayers(MetricId id, std::span<const float> values) {
    for (size_t layer = 0; layer < values.size(); ++layer) Write(id, values[layer], {{"layer", std::to_string(layer)}});
  }

  // A null return means that it did not fit, and has been counted.
  ClientMetric* Add(MetricId id, Labels labels, uint32_t series) {
    if (count_.taken + series > budget_) {
      count_.dropped += series;
      return nullptr;
    }
    count_.taken += series;
    ClientMetric& sample = (*families_)[static_cast<size_t>(id)].metric.emplace_back();
    sample.label.reserve(labels.size() + 1);
    sample.label.push_back({"run", run_});
    for (const auto& [name, value] : labels) sample.label.push_back({name, value});
    return &sample;
  }

  SeriesCount count() const { return count_; }

 private:
  const std::string& run_;
  const uint32_t budget_;
  std::vector<prometheus::MetricFamily>* const families_;
  SeriesCount count_;
};

void WriteScalars(const engine::RunState& run, RunWriter* out) {
  const model::Report& last = run.last;
  if (run.reports_total > 0) out->Write(MetricId::kStep, static_cast<double>(run.step));
  out->Write(MetricId::kLoss, last.Scalar(Signal::kLoss));
  out->Write(MetricId::kLearningRate, last.Scalar(Signal::kLearningRate));
  out->Write(MetricId::kGradNorm, last.Scalar(Signal::kGradNorm));
  if (run.last_report_unix_ms > 0)
    out->Write(MetricId::kLastReportTimestamp, static_cast<double>(run.last_report_unix_ms) / 1e3);
  out->Write(MetricId::kReports, static_cast<double>(run.reports_total));
  out->Write(MetricId::kReportsDropped, static_cast<double>(run.reports_dropped_total));
  out->Write(MetricId::kQkClipScaleMin, run.qk_clip_scale_min);
  out->Write(MetricId::kSpikeScorePercent, last.Scalar(Signal::kSpikeScoreLoss), {{"signal", "loss"}});
  out->Write(MetricId::kSpikeScorePercent, last.Scalar(Signal::kSpikeScoreGradNorm), {{"signal", "grad_norm"}});
  out->Write(MetricId::kHeadroomSteps, run.headroom_steps);
}

void WriteCounts(const engine::RunState& run, std::span<const std::string> detectors, RunWriter* out) {
  PairCounts active = ZeroDetectors(detectors);
  for (const model::Finding& finding : run.open_findings) ++active[Joined(finding.detector, Token(finding.severity))];
  out->WritePairs(MetricId::kFindingActive, "detector", "severity", active);

  PairCounts findings = ZeroDetectors(detectors);
  for (const auto& [pair, count] : run.findings_total) findings[pair] = count;
  out->WritePairs(MetricId::kFindings, "detector", "severity", findings);

  PairCounts interventions = ZeroKinds(kKinds, kStates);
  for (const auto& [pair, count] : run.interventions_total) interventions[pair] = count;
  out->WritePairs(MetricId::kInterventions, "kind", "state", interventions);

  PairCounts outcomes = ZeroKinds(kKinds, kOutcomes);
  for (const auto& [pair, count] : run.outcomes_total) outcomes[pair] = count;
  out->WritePairs(MetricId::kInterventionOutcomes, "kind", "outcome", outcomes);
}

void WriteHistogram(const engine::RunState& run, RunWriter* out) {
  constexpr size_t kBounds = std::size(engine::kAttnLogitBuckets);
  if (run.attn_logit_histogram.size() != kBounds + 1) return;  // No attention was reported.
  ClientMetric* sample = out->Add(MetricId::kLogit, {}, kHistogramSeries);
  if (sample == nullptr) return;
  uint64_t cumulative = 0;
  for (size_t i = 0; i <= kBounds; ++i) {
    cumulative += run.attn_logit_histogram[i];
    const double bound = i < kBounds ? engine::kAttnLogitBuckets[i] : std::numeric_limits<double>::infinity();
    sample->histogram.bucket.push_back({cumulative, bound});
  }
  sample->histogram.sample_count = cumulative;
  sample->histogram.sample_sum = run.attn_logit_sum;
}

void WriteWorstHeads(const engine::RunState& run, RunWriter* out) {
  for (size_t i = 0; i < run.worst_heads.size(); ++i) {
    const engine::HeadMax& head = run.worst_heads[i];
    const std::string slot = std::to_string(i + 1);
    out->Write(MetricId::kLogitTop, head.value, {{"slot", slot}});
    out->Write(MetricId::kLogitTopLayer, head.layer, {{"slot", slot}});
    out->Write(MetricId::kLogitTopHead, head.head, {{"slot", slot}});
  }
}

// How many attention logits belong to a layer; 0 where the spec does not say how the values divide into layers.
size_t HeadsOfALayer(const engine::RunState& run) {
  const size_t values = run.last.Array(Signal::kAttnLogitMax).size();
  size_t heads = run.spec.heads;
  if (heads == 0 && run.spec.layers > 0) heads = values / run.spec.layers;
  return heads != 0 && values % heads == 0 ? heads : 0;
}

// The largest of each layer's heads.
void WriteLogitMax(const engine::RunState& run, RunWriter* out) {
  const std::span<const float> values = run.last.Array(Signal::kAttnLogitMax);
  const size_t heads = HeadsOfALayer(run);
  if (heads == 0) return;
  for (size_t layer = 0; layer < values.size() / heads; ++layer) {
    float max = model::kAbsent;  // Below every measured value.
    for (const float value : values.subspan(layer * heads, heads))
      if (std::isnan(value) || value > max) max = value;  // A NaN stays: nothing is larger.
    out->Write(MetricId::kLogitMax, max, {{"layer", std::to_string(layer)}});
  }
}

double Rms(float mean_square) {
  return model::IsAbsent(mean_square) ? static_cast<double>(mean_square) : std::sqrt(static_cast<double>(mean_square));
}
double Same(float value) { return value; }

// Boundary 0 of the residual stream is the embedding; boundary l + 1 is what layer l left. A signal of as many values
// as layers has no embedding.
void WriteStream(MetricId id, const engine::RunState& run, Signal signal, double (*shown)(float), RunWriter* out) {
  std::span<const float> values = run.last.Array(signal);
  if (!values.empty() && values.size() == run.spec.layers + size_t{1}) {
    out->Write(id, shown(values.front()), {{"site", "embedding"}, {"layer", "0"}});
    values = values.subspan(1);
  }
  for (size_t layer = 0; layer < values.size(); ++layer)
    out->Write(id, shown(values[layer]), {{"site", "residual"}, {"layer", std::to_string(layer)}});
}

void WriteSite(const engine::RunState& run, Signal signal, const char* site, RunWriter* out) {
  const std::span<const float> values = run.last.Array(signal);
  for (size_t layer = 0; layer < values.size(); ++layer)
    out->Write(MetricId::kHiddenRms, Rms(values[layer]), {{"site", site}, {"layer", std::to_string(layer)}});
}

prometheus::MetricType ToPrometheus(MetricType type) {
  switch (type) {
    case MetricType::kGauge: return prometheus::MetricType::Gauge;
    case MetricType::kCounter: return prometheus::MetricType::Counter;
    case MetricType::kHistogram: return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

}  // namespace

prometheus::MetricFamily Family(const char* name, MetricType type, const char* help) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = ToPrometheus(type);
  return family;
}

std::vector<prometheus::MetricFamily> RunFamilies() {
  std::vector<prometheus::MetricFamily> families;
  for (const MetricInfo& info : RunMetrics()) families.push_back(Family(info.name, info.type, info.help));
  return families;
}

SeriesCount AppendRun(const engine::RunState& run, std::span<const std::string> detectors, uint32_t budget,
                      std::vector<prometheus::MetricFamily>* families) {
  RunWriter out(run.run, budget, families);
  WriteScalars(run, &out);
  WriteCounts(run, detectors, &out);
  WriteWorstHeads(run, &out);
  WriteHistogram(run, &out);
  WriteLogitMax(run, &out);
  out.WriteLayers(MetricId::kLayerGradNorm, run.last.Array(Signal::kLayerGradNorm));
  WriteStream(MetricId::kHiddenRms, run, Signal::kHiddenMs, Rms, &out);
  WriteSite(run, Signal::kAttnOutMs, "attn_out", &out);
  WriteSite(run, Signal::kMlpOutMs, "mlp_out", &out);
  WriteSite(run, Signal::kLnInputMs, "ln_input", &out);
  WriteStream(MetricId::kHiddenAbsmax, run, Signal::kHiddenAbsmax, Same, &out);
  return out.count();
}

SeriesCount AppendHeads(const engine::RunState& run, const LayerSet& layers, uint32_t budget,
                        prometheus::MetricFamily* family) {
  SeriesCount count;
  const std::span<const float> values = run.last.Array(Signal::kAttnLogitMax);
  const size_t heads = HeadsOfALayer(run);
  for (size_t i = 0; heads != 0 && i < values.size(); ++i) {
    const size_t layer = i / heads;
    if (!layers.Holds(layer) || model::IsAbsent(values[i])) continue;
    if (count.taken == budget) {
      ++count.dropped;
      continue;
    }
    ++count.taken;
    ClientMetric& sample = family->metric.emplace_back();
    sample.label = {{"run", run.run}, {"layer", std::to_string(layer)}, {"head", std::to_string(i % heads)}};
    sample.gauge.value = values[i];
  }
  return count;
}

}  // namespace gyrostat::telemetry
