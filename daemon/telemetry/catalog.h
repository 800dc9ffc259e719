// The table of metrics about runs: the one place that knows their names, types, labels and help.
#pragma once

#include <cstddef>
#include <span>

namespace gyrostat::telemetry {

// In order of importance: where a cap cuts, it cuts from the end.
enum class MetricId {
  kStep, kLoss, kLearningRate, kGradNorm, kLastReportTimestamp, kReports, kReportsDropped, kQkClipScaleMin,
  kSpikeScorePercent, kHeadroomSteps, kFindingActive, kFindings, kInterventions, kInterventionOutcomes, kLogitTop,
  kLogitTopLayer, kLogitTopHead, kLogit, kLogitMax, kLayerGradNorm, kHiddenRms, kHiddenAbsmax, kEnd,
};
inline constexpr size_t kMetrics = static_cast<size_t>(MetricId::kEnd);

enum class MetricType { kGauge, kCounter, kHistogram };
const char* Token(MetricType type);  // gauge counter histogram

struct MetricInfo {
  MetricId id;
  const char* name;
  MetricType type;
  const char* labels;  // Joined by commas, in the order in which they are written.
  const char* help;
};

// All, in order of MetricId.
std::span<const MetricInfo> RunMetrics();

inline constexpr MetricInfo kBuildInfo{MetricId::kEnd, "gyrostat_build_info", MetricType::kGauge, "version",
                                       "Always 1; the labels say what is running."};

// Only on the target for all heads of some layers.
inline constexpr MetricInfo kHeadLogitMax{MetricId::kEnd, "gyrostat_head_attention_logit_max", MetricType::kGauge,
                                          "run,layer,head",
                                          "Largest attention logit of the head; only on /metrics/heads?run=&layers=."};

}  // namespace gyrostat::telemetry
