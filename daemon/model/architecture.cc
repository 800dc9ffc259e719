#include "model/architecture.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace gyrostat::model {
namespace {

using F = Failure;
using G = GradientLaw;
using L = ProfileLaw;
using P = NormPlacement;

// Likeliest first. Post-norm: arXiv 2002.04745, 2004.08249. Pre-norm: 2502.02732 (Peri-LN), 2502.05795 (curse of
// depth), 2309.14322 (both kinds of logits).
constexpr std::array kPostFailures = {F::kPostNormCollapse, F::kSlowDivergence, F::kAttentionLogits};
constexpr std::array kPreFailures = {F::kAttentionLogits, F::kHalfOverflow, F::kGradientSpikes, F::kDeadDepth,
                                     F::kOutputLogits};
constexpr std::array kPeriFailures = {F::kAttentionLogits, F::kOutputLogits, F::kGradientSpikes};
constexpr std::array kReorderedFailures = {F::kOutputLogits, F::kAttentionLogits, F::kGradientSpikes};
constexpr std::array kScalingFailures = {F::kAttentionLogits, F::kOutputLogits, F::kGradientSpikes};
constexpr std::array kDualFailures = {F::kHalfOverflow, F::kAttentionLogits, F::kPostNormCollapse};
constexpr std::array kMixFailures = {F::kPostNormCollapse, F::kAttentionLogits, F::kHalfOverflow};

constexpr std::array kArchitectures = {
    Architecture{.name = "post", .placement = P::kPost, .formula = "y = LN(x + F(x))", .post_norm_family = true,
                 .stream = L::kConstant, .stream_trained = L::kConstant, .gradient = G::kFlat, .ln_input_ms = 1.5,
                 .prone = kPostFailures, .source = "Vaswani et al. 2017; Xiong et al. 2020 (2002.04745) Lemma 2"},
    Architecture{.name = "pre", .placement = P::kPre, .formula = "y = x + F(LN(x))", .stream = L::kLinear,
                 .stream_trained = L::kExponential, .step_low = 0.5, .step_high = 1.5, .gradient = G::kInverseStream,
                 .prone = kPreFailures, .source = "Xiong et al. 2020 (2002.04745) Lemma 2"},
    // Output projections start 1/sqrt(2L) times smaller: the whole stack adds about as much as one layer otherwise.
    Architecture{.name = "gpt2", .placement = P::kPre, .formula = "y = x + F(LN(x)), W_o and W_2 / sqrt(2L), final LN",
                 .stream = L::kLinear, .stream_trained = L::kExponential, .gradient = G::kInverseStream,
                 .prone = kPreFailures, .source = "Radford et al. 2019 §2.3"},
    Architecture{.name = "normformer", .placement = P::kPre,
                 .formula = "y = x + LN(A(LN(x))); z = y + W_2 LN(act(W_1 LN(y)))", .stream = L::kLinear,
                 .stream_trained = L::kExponential, .step_low = 1, .step_high = 2.5, .gradient = G::kUnknown,
                 .prone = kPreFailures, .source = "Shleifer et al. 2021 (2110.09456)"},
    Architecture{.name = "peri", .placement = P::kPeri, .formula = "y = x + LN(F(LN(x)))", .stream = L::kLinear,
                 .stream_trained = L::kLinear, .step_low = 2, .step_high = 2, .gradient = G::kInverseStream,
                 .prone = kPeriFailures,
                 .source = "Kim et al. 2025 (2502.02732); sandwich: Ding et al. 2021 (2105.13290)"},
    Architecture{.name = "reordered", .placement = P::kReordered, .formula = "y = x + LN(F(x))", .stream = L::kLinear,
                 .stream_trained = L::kLinear, .step_low = 2, .step_high = 2, .gradient = G::kInverseStream,
                 .prone = kReorderedFailures, .source = "OLMo 2 (2501.00656) §3.3.2"},
    Architecture{.name = "deepnorm", .placement = P::kDeepnorm,
                 .formula = "y = LN(alpha x + F(x)), W_v W_o W_1 W_2 beta", .post_norm_family = true,
                 .stream = L::kConstant, .stream_trained = L::kConstant, .gradient = G::kFlat,
                 .ln_input_ms = 1, .prone = kPostFailures, .source = "Wang et al. 2022 (2203.00555)"},
    Architecture{.name = "mix", .placement = P::kMix, .formula = "first quarter post, the rest pre",
                 .stream = L::kConstantThenLinear, .stream_trained = L::kConstantThenLinear, .step_low = 0.5,
                 .step_high = 1.5, .gradient = G::kInverseStream, .ln_input_ms = 1.5, .prone = kMixFailures,
                 .source = "Li et al. 2024 (2412.13795)"},
    Architecture{.name = "hybrid", .placement = P::kHybrid,
                 .formula = "y = x + W_o attention(norm(Q), norm(K), norm(V)); z = LN(F(y) + y)",
                 .post_norm_family = true, .stream = L::kConstant, .stream_trained = L::kConstant, .gradient = G::kFlat,
                 .ln_input_ms = 2.7, .prone = kPostFailures, .source = "Zhuo et al. 2025 (2503.04598)"},
    Architecture{.name = "layernorm_scaling", .placement = P::kLayernormScaling,
                 .formula = "y = x + F(LN(x) / sqrt(l))", .stream = L::kLogarithmic, .stream_trained = L::kLinear,
                 .step_low = 0.5, .step_high = 1.5, .gradient = G::kInverseStreamRootDepth, .prone = kScalingFailures,
                 .source = "Sun et al. 2025 (2502.05795)"},
    Architecture{.name = "residual_dual", .placement = P::kResidualDual,
                 .formula = "y = LN(x + F(x)), d = d + F(x); output y + LN(d)", .post_norm_family = true,
                 .stream = L::kConstant, .stream_trained = L::kConstant, .gradient = G::kFlat, .ln_input_ms = 1.5,
                 .prone = kDualFailures, .source = "Xie et al. 2023 (2304.14802)"},
    Architecture{.name = "keel", .placement = P::kKeel, .formula = "y = LN(alpha x + F(LN(x)))",
                 .post_norm_family = true, .stream = L::kConstant, .stream_trained = L::kConstant, .gradient = G::kFlat,
                 .ln_input_ms = 1, .prone = kPostFailures,
                 .source = "highway-style post-norm; published alpha not verified"},
    Architecture{.name = "unknown"},
};

bool HasQkNorm(const ModelSpec& spec) {
  return spec.qk_norm == QkNorm::kPerHead || spec.qk_norm == QkNorm::kFlattened;
}

Advice AgainstCollapse(const Architecture& architecture) {
  if (architecture.placement == P::kMix)
    return {InterventionKind::kWarmupExtension, "The post-norm layers at the bottom need a longer warm-up."};
  if (!architecture.post_norm_family)
    return {std::nullopt, "This placement keeps an open residual path and does not collapse this way."};
  return {InterventionKind::kWarmupExtension,
          "While the warm-up still runs, stretching it rescues the run; once it is over, only more residual weight "
          "(alpha) or a rollback does."};
}

Advice AgainstLogits(const ModelSpec& spec) {
  if (HasQkNorm(spec))
    return {InterventionKind::kQkClip, "Under QK-norm the norm's gain sets the logits, so the clip scales the gain."};
  return {InterventionKind::kQkClip, "Clipping the heads over tau takes the attention part of the damage away."};
}

// 1 + 1/2 + ... + 1/n.
double Harmonic(uint32_t n) {
  double sum = 0;
  for (uint32_t i = 1; i <= n; ++i) sum += 1.0 / i;
  return sum;
}

}  // namespace

const char* Token(ProfileLaw v) {
  switch (v) {
    case L::kUnknown: return "";
    case L::kConstant: return "constant";
    case L::kLinear: return "linear";
    case L::kExponential: return "exponential";
    case L::kLogarithmic: return "logarithmic";
    case L::kConstantThenLinear: return "constant_then_linear";
  }
  return "";
}

const char* Token(GradientLaw v) {
  switch (v) {
    case G::kUnknown: return "";
    case G::kFlat: return "flat";
    case G::kInverseStream: return "inverse_stream";
    case G::kInverseStreamRootDepth: return "inverse_stream_root_depth";
  }
  return "";
}

const char* Token(Failure v) {
  switch (v) {
    case F::kPostNormCollapse: return "post_norm_collapse";
    case F::kSlowDivergence: return "slow_divergence";
    case F::kAttentionLogits: return "attention_logits";
    case F::kOutputLogits: return "output_logits";
    case F::kHalfOverflow: return "half_overflow";
    case F::kDeadDepth: return "dead_depth";
    case F::kGradientSpikes: return "gradient_spikes";
  }
  return "";
}

std::string_view Describe(Failure v) {
  switch (v) {
    case F::kPostNormCollapse: return "the first blocks' gradients vanish because the warm-up is too fast";
    case F::kSlowDivergence: return "the loss creeps up over hundreds of steps";
    case F::kAttentionLogits: return "attention logits run away";
    case F::kOutputLogits: return "the output logits drift";
    case F::kHalfOverflow: return "the residual stream outgrows fp16";
    case F::kDeadDepth: return "deep layers no longer write into the residual stream";
    case F::kGradientSpikes: return "the gradient norm spikes, and usually heals";
  }
  return "";
}

std::span<const Architecture> Architectures() { return kArchitectures; }

const Architecture* FindArchitecture(std::string_view name) {
  const auto at = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                               [name](const Architecture& a) { return a.name == name; });
  return at == kArchitectures.end() ? nullptr : &*at;
}

const Architecture& ArchitectureOf(const ModelSpec& spec) {
  const Architecture* named = spec.preset.empty() ? nullptr : FindArchitecture(spec.preset);
  const bool agrees = spec.norm_placement == P::kUnknown || (named && named->placement == spec.norm_placement);
  if (named != nullptr && agrees) return *named;
  const auto at = std::find_if(kArchitectures.begin(), kArchitectures.end(), [&spec](const Architecture& a) {
    return a.placement == spec.norm_placement;
  });
  return at == kArchitectures.end() ? kArchitectures.back() : *at;
}

uint32_t MixSplit(uint32_t layers) { return std::max(1u, layers / 4); }

double ExpectedStream(ProfileLaw law, uint32_t boundary, double step, uint32_t split) {
  switch (law) {
    case L::kConstant: return 1;
    case L::kLinear: return 1 + step * boundary;
    case L::kLogarithmic: return 1 + step * Harmonic(boundary);
    case L::kConstantThenLinear: return boundary <= split ? 1 : 1 + step * (boundary - split);
    case L::kUnknown:
    case L::kExponential: return 0;
  }
  return 0;
}

double ExpectedGradient(const Architecture& architecture, uint32_t layer, double step, uint32_t split) {
  if (architecture.gradient == G::kUnknown) return 0;
  if (architecture.gradient == G::kFlat) return 1;
  const double first = ExpectedStream(architecture.stream, 1, step, split);
  const double here = ExpectedStream(architecture.stream, layer + 1, step, split);
  const double depth = architecture.gradient == G::kInverseStreamRootDepth ? layer + 1.0 : 1.0;
  return std::sqrt(first / (here * depth));
}

Advice AdviceFor(const ModelSpec& spec, Failure failure) {
  const Architecture& architecture = ArchitectureOf(spec);
  switch (failure) {
    case F::kPostNormCollapse:
      return AgainstCollapse(architecture);
    case F::kSlowDivergence:
      if (architecture.placement == P::kPost || architecture.placement == P::kDeepnorm)
        return {InterventionKind::kDeepnormAlpha,
                "More residual weight turned such runs down again; a lower learning rate only does so early."};
      return {InterventionKind::kLrScale,
              "A lower learning rate, early: these placements recover from a late cut too."};
    case F::kAttentionLogits:
      return AgainstLogits(spec);
    case F::kOutputLogits:
      return {std::nullopt, "A z-loss or weight decay on the output layer cures it; no order to a running job does."};
    case F::kHalfOverflow:
      return {InterventionKind::kLrScale, "A lower learning rate buys time; the lasting cure is bf16 or a norm behind "
                                          "each branch."};
    case F::kDeadDepth:
      return {std::nullopt, "It costs depth, not the run: another placement or initialisation next time."};
    case F::kGradientSpikes:
      return {std::nullopt, "Isolated spikes come from data or optimizer state and heal: look at the batch first."};
  }
  return {std::nullopt, "Nothing is known about it."};
}

bool IsProne(const ModelSpec& spec, Failure failure) {
  if (failure == F::kAttentionLogits && HasQkNorm(spec)) return false;
  if (failure == F::kHalfOverflow && !spec.compute_dtype.empty() && spec.compute_dtype != "fp16") return false;
  const std::span<const Failure> prone = ArchitectureOf(spec).prone;
  return std::find(prone.begin(), prone.end(), failure) != prone.end();
}

}  // namespace gyrostat::model
