#include "diagnose/causes.h"

#include <optional>

namespace gyrostat::diagnose {
namespace {

using model::Failure;
using model::Finding;
using model::Signal;

std::optional<Failure> FailureOf(Cause cause) {
  switch (cause) {
    case Cause::kPostNormCollapse: return Failure::kPostNormCollapse;
    case Cause::kSlowDivergence: return Failure::kSlowDivergence;
    case Cause::kAttentionLogits: return Failure::kAttentionLogits;
    case Cause::kOutputLogits: return Failure::kOutputLogits;
    case Cause::kHalfOverflow: return Failure::kHalfOverflow;
    case Cause::kDeadDepth: return Failure::kDeadDepth;
    case Cause::kBadData: return Failure::kGradientSpikes;
    default: return std::nullopt;
  }
}

bool IsStream(Signal s) {
  return s == Signal::kHiddenAbsmax || s == Signal::kHiddenMs || s == Signal::kLnInputMs || s == Signal::kAttnOutMs ||
         s == Signal::kMlpOutMs;
}

Votes Nonfinite(const Finding& f, const model::ModelSpec& spec) {
  if (IsStream(f.signal) && spec.compute_dtype == "fp16") return {{{Cause::kHalfOverflow, 2}, {Cause::kNumeric, 1}}};
  if (f.signal == Signal::kAttnLogitMax) return {{{Cause::kNumeric, 1.5}, {Cause::kAttentionLogits, 1}}};
  if (f.signal == Signal::kLossScale) return {{{Cause::kLossScale, 1}, {Cause::kNumeric, 1}}};
  return {{{Cause::kNumeric, 1.5}, {}}};
}

Votes Spike(const Finding& f) {
  if (f.healed.value_or(false)) return {{{Cause::kBadData, 2}, {}}};
  return {{{Cause::kBadData, 1}, {Cause::kSlowDivergence, f.severity == model::Severity::kCritical ? 2.0 : 0.5}}};
}

struct Known {
  std::string_view detector;
  Votes votes;
};
// Detectors whose word means the same in every model.
constexpr std::array kKnown = {
    Known{"ln_input", {{{Cause::kPostNormCollapse, 2.5}, {}}}},
    Known{"grad_roughness", {{{Cause::kSlowDivergence, 2.5}, {}}}},
    Known{"divergence", {{{Cause::kSlowDivergence, 2}, {}}}},
    Known{"grad_growth", {{{Cause::kSlowDivergence, 1.5}, {}}}},
    Known{"attn_logit", {{{Cause::kAttentionLogits, 3}, {}}}},
    Known{"attn_entropy", {{{Cause::kAttentionLogits, 2}, {}}}},
    Known{"log_z", {{{Cause::kOutputLogits, 3}, {}}}},
    Known{"headroom", {{{Cause::kHalfOverflow, 3}, {}}}},
    Known{"depth_profile", {{{Cause::kDeadDepth, 1}, {Cause::kHalfOverflow, 0.5}}}},
    Known{"dead_depth", {{{Cause::kDeadDepth, 3}, {}}}},
    Known{"spike_score", {{{Cause::kBadData, 0.5}, {Cause::kOptimizer, 0.5}}}},
    Known{"loss_scale", {{{Cause::kLossScale, 3}, {}}}},
    Known{"update_ratio", {{{Cause::kOptimizer, 2.5}, {}}}},
    Known{"adam_eps", {{{Cause::kOptimizer, 2.5}, {}}}},
    Known{"rank_outlier", {{{Cause::kRank, 4}, {}}}},
    Known{"silence", {{{Cause::kSilence, 1}, {}}}},
};

}  // namespace

const char* Token(Cause v) {
  switch (v) {
    case Cause::kUnknown: return "unknown";
    case Cause::kPostNormCollapse: return "post_norm_collapse";
    case Cause::kSlowDivergence: return "slow_divergence";
    case Cause::kAttentionLogits: return "attention_logits";
    case Cause::kOutputLogits: return "output_logits";
    case Cause::kHalfOverflow: return "half_overflow";
    case Cause::kDeadDepth: return "dead_depth";
    case Cause::kBadData: return "bad_data";
    case Cause::kRank: return "rank";
    case Cause::kInstrument: return "instrument";
    case Cause::kLossScale: return "loss_scale";
    case Cause::kOptimizer: return "optimizer";
    case Cause::kNumeric: return "numeric";
    case Cause::kSilence: return "silence";
  }
  return "";
}

std::string_view Sentence(Cause cause) {
  switch (cause) {
    case Cause::kUnknown: return "Something is wrong that no detector explains";
    case Cause::kPostNormCollapse: return "The first blocks stop learning: the warm-up is too fast";
    case Cause::kSlowDivergence: return "The run diverges slowly";
    case Cause::kAttentionLogits: return "Attention logits run away";
    case Cause::kOutputLogits: return "Output logits drift";
    case Cause::kHalfOverflow: return "The residual stream outgrows fp16";
    case Cause::kDeadDepth: return "Deep layers no longer write into the residual stream";
    case Cause::kBadData: return "Bad batches";
    case Cause::kRank: return "One rank disagrees with the others";
    case Cause::kInstrument: return "The signals cannot be right";
    case Cause::kLossScale: return "The loss scale collapses";
    case Cause::kOptimizer: return "The optimizer's updates are off";
    case Cause::kNumeric: return "NaN or Inf without a forerunner";
    case Cause::kSilence: return "The job no longer reports";
  }
  return "";
}

Votes VotesOf(const Finding& finding, const model::ModelSpec& spec) {
  const model::Architecture& architecture = model::ArchitectureOf(spec);
  const bool closed = architecture.post_norm_family || architecture.placement == model::NormPlacement::kMix;
  const Cause stuck = closed ? Cause::kPostNormCollapse : Cause::kSlowDivergence;
  if (finding.detector == "nonfinite") return Nonfinite(finding, spec);
  if (finding.detector == "loss_spike" || finding.detector == "grad_spike") return Spike(finding);
  if (finding.detector == "grad_profile") return {{{stuck, closed ? 3.0 : 1.0}, {}}};
  if (finding.detector == "warmup") return {{{stuck, 2}, {}}};
  if (finding.detector == "instrument")
    return {{{Cause::kInstrument, finding.severity == model::Severity::kInfo ? 0.4 : 6.0}, {}}};
  for (const Known& known : kKnown)
    if (known.detector == finding.detector) return known.votes;
  return {{{Cause::kUnknown, 0.5}, {}}};
}

double Prior(Cause cause, const model::ModelSpec& spec) {
  const std::optional<Failure> failure = FailureOf(cause);
  if (!failure || model::ArchitectureOf(spec).placement == model::NormPlacement::kUnknown) return 1;
  if (cause == Cause::kBadData) return 1;  // Data come to every model alike.
  return model::IsProne(spec, *failure) ? 1.5 : 0.5;
}

std::string Likely(Cause cause, const model::ModelSpec& spec) {
  const model::Architecture& architecture = model::ArchitectureOf(spec);
  if (architecture.placement == model::NormPlacement::kUnknown) return {};
  const std::string name(architecture.name);
  const std::optional<Failure> failure = FailureOf(cause);
  if (failure && !model::IsProne(spec, *failure))
    return "A model of placement " + name + " as declared seldom fails this way: is the declaration right?";
  std::string text = "Likeliest failures of models of placement " + name + ", in this order: ";
  for (size_t i = 0; i < architecture.prone.size(); ++i) {
    if (i > 0) text += "; ";
    text += model::Describe(architecture.prone[i]);
  }
  return text + ".";
}

Advice AdviceFor(Cause cause, const Diagnosis& diagnosis, const model::ModelSpec& spec) {
  if (cause == Cause::kBadData) {
    const std::string step = std::to_string(diagnosis.first_step);
    return {std::nullopt, "Look at the batches from step " + step + " on. No order to the job: such spikes heal."};
  }
  if (const std::optional<Failure> failure = FailureOf(cause)) {
    const model::Advice advice = model::AdviceFor(spec, *failure);
    return {advice.kind, std::string(advice.why)};
  }
  switch (cause) {
    case Cause::kRank: {
      const std::string who = diagnosis.rank ? "rank " + std::to_string(*diagnosis.rank) : std::string("that rank");
      return {std::nullopt, "Check the data shard and the hardware of " + who +
                                ". Where weights differ, restart from the last checkpoint."};
    }
    case Cause::kInstrument:
      return {std::nullopt,
              "Repair the hook or the declaration first: nothing else said here can be trusted until then."};
    case Cause::kLossScale:
      return {std::nullopt,
              "A collapsed scale is a consequence: look for what overflows, then restart from before it."};
    case Cause::kOptimizer:
      return {model::InterventionKind::kLrScale,
              "A lower learning rate, or another epsilon or beta2 at the next start."};
    case Cause::kNumeric:
      return {model::InterventionKind::kCheckpoint, "Keep the last healthy checkpoint. If the step does not reproduce "
                                                    "the value, suspect the hardware."};
    case Cause::kSilence:
      return {std::nullopt, "Look whether the job still runs, and whether it can reach this daemon."};
    default:
      return {std::nullopt, "Look at the evidence: what moved first is named."};
  }
}

}  // namespace gyrostat::diagnose
