#include "diagnose/causes.h"

#include <algorithm>
#include <optional>

namespace gyrostat::diagnose {
namespace {

using model::Failure;
using model::Finding;
using model::Signal;

// By how much the gradient norm leads the loss where the optimizer is at fault; a batch moves both at its own step.
// Five steps in the one public log that shows it (a Megatron run, gradient norm 15 at 1597, loss up at 1602).
constexpr model::Step kLeadStepsMin = 2, kLeadStepsMax = 32;

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

Votes Nonfinite(const Finding& f, const Company& company, const model::ModelSpec& spec) {
  if (IsStream(f.signal) && spec.compute_dtype == "fp16") return {{{Cause::kHalfOverflow, 4}, {Cause::kNumeric, 1}}};
  if (company.forerunner) return {{{Cause::kSlowDivergence, 2}, {}}};
  if (f.signal == Signal::kAttnLogitMax) return {{{Cause::kNumeric, 1.5}, {Cause::kAttentionLogits, 1}}};
  if (f.signal == Signal::kLossScale) return {{{Cause::kLossScale, 1}, {Cause::kNumeric, 1}}};
  return {{{Cause::kNumeric, company.lasting_nonfinite ? 3 : 1.5}, {}}};
}

Votes Spike(const Finding& f, const Company& company) {
  if (company.lasting_nonfinite && !f.healed.value_or(false)) return {{{Cause::kSlowDivergence, 2}, {}}};
  if (company.gradient_led) return {{{Cause::kOptimizer, 2}, {Cause::kBadData, 1}}};
  if (f.healed.value_or(false)) return {{{Cause::kBadData, 2}, {}}};
  return {{{Cause::kBadData, 1}, {Cause::kSlowDivergence, f.severity == model::Severity::kCritical ? 2.0 : 0.5}}};
}

// A loss or gradient that runs off, as against something that has nothing to do with it.
bool CanEndInNan(const Finding& f) {
  constexpr std::array<std::string_view, 7> kRunOff = {"loss_spike",     "grad_spike", "divergence",  "grad_growth",
                                                       "grad_roughness", "warmup",     "update_ratio"};
  return f.severity > model::Severity::kInfo && !f.healed.value_or(false) &&
         std::find(kRunOff.begin(), kRunOff.end(), f.detector) != kRunOff.end();
}

struct Known {
  std::string_view detector;
  Votes votes;
};
// Detectors whose word means the same in every model.
constexpr std::array kKnown = {
    Known{"ln_input", {{{Cause::kPostNormCollapse, 2.5}, {}}}},
    Known{"divergence", {{{Cause::kSlowDivergence, 2}, {}}}},
    Known{"grad_growth", {{{Cause::kSlowDivergence, 1.5}, {}}}},
    Known{"attn_logit", {{{Cause::kAttentionLogits, 3}, {}}}},
    Known{"attn_entropy", {{{Cause::kAttentionLogits, 2}, {}}}},
    Known{"log_z", {{{Cause::kOutputLogits, 3}, {}}}},
    // What counts the steps until the end outweighs what may lead there.
    Known{"headroom", {{{Cause::kHalfOverflow, 4}, {}}}},
    Known{"depth_profile", {{{Cause::kDeadDepth, 1}, {Cause::kHalfOverflow, 0.5}}}},
    Known{"dead_depth", {{{Cause::kDeadDepth, 3}, {}}}},
    Known{"spike_score", {{{Cause::kBadData, 0.5}, {Cause::kOptimizer, 0.5}}}},
    Known{"loss_scale", {{{Cause::kLossScale, 3}, {}}}},
    Known{"update_ratio", {{{Cause::kOptimizer, 2.5}, {}}}},
    Known{"adam_eps", {{{Cause::kOptimizer, 2.5}, {}}}},
    Known{"rank_outlier", {{{Cause::kRank, 4}, {}}}},
    Known{"policy", {{{Cause::kIntervention, 3}, {}}}},
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
    case Cause::kIntervention: return "intervention";
  }
  return "";
}

std::string_view Sentence(Cause cause) {
  switch (cause) {
    case Cause::kUnknown: return "Something is wrong that no detector explains";
    case Cause::kPostNormCollapse: return "The first blocks stop learning: the warm-up is too fast";
    case Cause::kSlowDivergence: return "The run diverges";
    case Cause::kAttentionLogits: return "Attention logits run away";
    case Cause::kOutputLogits: return "Output logits drift";
    case Cause::kHalfOverflow: return "The residual stream outgrows its number format";
    case Cause::kDeadDepth: return "Deep layers no longer write into the residual stream";
    case Cause::kBadData: return "Bad batches";
    case Cause::kRank: return "One rank disagrees with the others";
    case Cause::kInstrument: return "The signals cannot be right";
    case Cause::kLossScale: return "The loss scale collapses";
    case Cause::kOptimizer: return "The optimizer's updates are off";
    case Cause::kNumeric: return "NaN or Inf without a forerunner";
    case Cause::kSilence: return "The job no longer reports";
    case Cause::kIntervention: return "Interventions fail or do not help";
  }
  return "";
}

Company CompanyOf(const std::vector<Finding>& findings) {
  Company company;
  const auto earlier = [](std::optional<model::Step>* step, model::Step seen) {
    *step = std::min(step->value_or(seen), seen);
  };
  std::optional<model::Step> loss;
  for (const Finding& f : findings) {
    if (f.detector == "nonfinite" && f.severity == model::Severity::kCritical && !f.step_end)
      earlier(&company.lasting_nonfinite, f.step_begin);
    if (f.detector == "loss_spike") earlier(&loss, f.step_begin);
    if (f.detector == "grad_roughness" && f.signal == Signal::kGradNorm) company.gradient_rough = true;
    if (f.detector == "loss_spike" || f.detector == "grad_spike") ++company.spikes;
  }
  for (const Finding& f : findings) {
    if (company.lasting_nonfinite && f.step_begin < *company.lasting_nonfinite && CanEndInNan(f))
      company.forerunner = true;
    if (loss && f.detector == "grad_spike" && f.step_begin <= *loss && *loss - f.step_begin <= kLeadStepsMax)
      company.gradient_led = company.gradient_led || *loss - f.step_begin >= kLeadStepsMin;
  }
  return company;
}

Votes VotesOf(const Finding& finding, const Company& company, const model::ModelSpec& spec) {
  const model::Architecture& architecture = model::ArchitectureOf(spec);
  const bool closed = architecture.post_norm_family || architecture.placement == model::NormPlacement::kMix;
  const Cause stuck = closed ? Cause::kPostNormCollapse : Cause::kSlowDivergence;
  if (finding.detector == "nonfinite") return Nonfinite(finding, company, spec);
  if (finding.detector == "loss_spike" || finding.detector == "grad_spike") return Spike(finding, company);
  if (finding.detector == "grad_profile") return {{{stuck, closed ? 3.0 : 1.0}, {}}};
  if (finding.detector == "warmup") return {{{stuck, 2}, {}}};
  // A block's is the slow divergence of experiments.md §5; the whole model's comes before bursts of spikes.
  if (finding.detector == "grad_roughness" && finding.signal == Signal::kGradNorm)
    return {{{Cause::kOptimizer, 2.5}, {Cause::kSlowDivergence, 1}}};
  if (finding.detector == "grad_roughness") return {{{Cause::kSlowDivergence, 2.5}, {}}};
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
  const std::optional<Failure> failure = FailureOf(cause);
  if (!failure || cause == Cause::kBadData) return {};  // It comes to every model alike.
  const bool normed = spec.qk_norm == model::QkNorm::kPerHead || spec.qk_norm == model::QkNorm::kFlattened;
  const std::string name = std::string(architecture.name) + (normed ? " with QK-norm" : "");
  if (!model::IsProne(spec, *failure))
    return "A model of placement " + name + " as declared seldom fails this way: is the declaration right?";
  if (architecture.prone.front() == *failure) return "It is the likeliest failure of models of placement " + name + ".";
  return "Models of placement " + name + " are prone to it. Likelier still: " +
         std::string(model::Describe(architecture.prone.front())) + ".";
}

namespace {

// What model/ knows of the placement; of an unknown one it cannot say which it means.
std::string Cure(model::Failure failure, const model::ModelSpec& spec) {
  const bool unknown = model::ArchitectureOf(spec).placement == model::NormPlacement::kUnknown;
  if (unknown && failure == Failure::kSlowDivergence) return "A lower learning rate helps, the earlier the better.";
  return std::string(model::AdviceFor(spec, failure).why);
}

// Where values are NaN no order to the job repairs them, whatever the cause.
std::optional<Advice> AdviceAfterNan(Cause cause, const Company& company, const model::ModelSpec& spec) {
  if (!company.lasting_nonfinite || cause == Cause::kInstrument || cause == Cause::kSilence) return std::nullopt;
  const model::Step since = *company.lasting_nonfinite;
  if (since <= 1)
    return Advice{std::nullopt, "It is so from the first step on: no checkpoint helps. Look at the input, the "
                                "initialisation and the dtype."};
  std::string text = "Go back to a checkpoint from before step " + std::to_string(since) + ". ";
  if (const std::optional<Failure> failure = FailureOf(cause); failure && cause != Cause::kBadData)
    text += Cure(*failure, spec);
  else
    text += "If the step does not give the same value again, suspect the hardware; if it does, the batch or the code.";
  return Advice{model::InterventionKind::kRollback, std::move(text)};
}

std::string AdviceOnData(const Company& company, const Diagnosis& diagnosis) {
  if (company.spikes >= kRecurringSpikes)
    return "If the same steps spike again on the same data, it is the data; if not, the learning rate or Adam's beta2 "
           "is too high.";
  const std::string text = "Look at the batches from step " + std::to_string(diagnosis.first_step) + " on.";
  return diagnosis.healed.value_or(false) ? text : text + " No order to the job yet: most such spikes heal.";
}

}  // namespace

Advice AdviceFor(Cause cause, const Company& company, const Diagnosis& diagnosis, const model::ModelSpec& spec) {
  if (auto advice = AdviceAfterNan(cause, company, spec)) return *std::move(advice);
  if (cause == Cause::kBadData) return {std::nullopt, AdviceOnData(company, diagnosis)};
  if (const std::optional<Failure> failure = FailureOf(cause)) {
    return {model::AdviceFor(spec, *failure).kind, Cure(*failure, spec)};
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
    case Cause::kIntervention:
      return {std::nullopt, "The evidence says what to change; until then take it that nothing holds the run."};
    case Cause::kSilence:
      return {std::nullopt, "Look whether the job still runs, and whether it can reach this daemon."};
    default:
      return {std::nullopt, "Look at the evidence: what moved first is named."};
  }
}

}  // namespace gyrostat::diagnose
