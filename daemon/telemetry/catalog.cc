#include "telemetry/catalog.h"

namespace gyrostat::telemetry {
namespace {

using enum MetricType;

constexpr MetricInfo kTable[] = {
    {MetricId::kStep, "gyrostat_step", kGauge, "run", "Optimizer step of the newest report."},
    {MetricId::kLoss, "gyrostat_loss", kGauge, "run", "Training loss of the newest report, nats per token."},
    {MetricId::kLearningRate, "gyrostat_learning_rate", kGauge, "run", "Learning rate used in the newest step."},
    {MetricId::kGradNorm, "gyrostat_grad_norm", kGauge, "run",
     "Global L2 norm of the gradient before clipping, loss scale divided out."},
    {MetricId::kLastReportTimestamp, "gyrostat_last_report_timestamp_seconds", kGauge, "run",
     "When the newest report arrived, Unix time."},
    {MetricId::kReports, "gyrostat_reports_total", kCounter, "run", "Reports taken, repeats not counted."},
    {MetricId::kReportsDropped, "gyrostat_reports_dropped_total", kCounter, "run",
     "Reports that the client had to drop, as it says itself."},
    {MetricId::kQkClipScaleMin, "gyrostat_qk_clip_scale_min", kGauge, "run",
     "Smallest factor by which QK-Clip has scaled a head's logits in all; 1 where nothing was clipped."},
    {MetricId::kSpikeScorePercent, "gyrostat_spike_score_percent", kGauge, "run,signal",
     "Share of recent steps that are outliers of the signal, percent."},
    {MetricId::kHeadroomSteps, "gyrostat_headroom_steps", kGauge, "run",
     "Steps until the residual stream outgrows its number format, at the soonest; +Inf where it does not grow."},
    {MetricId::kFindingActive, "gyrostat_finding_active", kGauge, "run,detector,severity",
     "Findings that have begun and not ended."},
    {MetricId::kFindings, "gyrostat_findings_total", kCounter, "run,detector,severity", "Findings that have begun."},
    {MetricId::kInterventions, "gyrostat_interventions_total", kCounter, "run,kind,state",
     "Interventions (intents, not orders) that have reached the state."},
    {MetricId::kInterventionOutcomes, "gyrostat_intervention_outcomes_total", kCounter, "run,kind,outcome",
     "Interventions by what they turned out to do."},
    {MetricId::kLogitTop, "gyrostat_attention_logit_top", kGauge, "run,slot",
     "Largest attention logit of the worst heads, slot 1 the worst."},
    {MetricId::kLogitTopLayer, "gyrostat_attention_logit_top_layer", kGauge, "run,slot",
     "Layer of the head in the slot of gyrostat_attention_logit_top."},
    {MetricId::kLogitTopHead, "gyrostat_attention_logit_top_head", kGauge, "run,slot",
     "Head of the head in the slot of gyrostat_attention_logit_top."},
    {MetricId::kLogit, "gyrostat_attention_logit", kHistogram, "run",
     "Largest attention logits, one observation per head and report."},
    {MetricId::kLogitMax, "gyrostat_attention_logit_max", kGauge, "run,layer",
     "Largest attention logit among the heads of the layer; NaN if one of them is."},
    {MetricId::kLayerGradNorm, "gyrostat_layer_grad_norm", kGauge, "run,layer", "L2 norm of the layer's gradient."},
    {MetricId::kHiddenRms, "gyrostat_hidden_rms", kGauge, "run,site,layer",
     "Root mean square of a hidden state. Sites: embedding (before layer 0), residual (after the layer), attn_out, "
     "mlp_out, ln_input."},
    {MetricId::kHiddenAbsmax, "gyrostat_hidden_absmax", kGauge, "run,site,layer",
     "Largest magnitude in the residual stream. Sites: embedding (before layer 0), residual (after the layer)."},
};
static_assert(std::size(kTable) == kMetrics);

}  // namespace

std::span<const MetricInfo> RunMetrics() { return kTable; }

const char* Token(MetricType type) {
  switch (type) {
    case kGauge: return "gauge";
    case kCounter: return "counter";
    case kHistogram: return "histogram";
  }
  return "";
}

}  // namespace gyrostat::telemetry
