// What is normal for a model's norm placement: how hidden states and gradients should run over depth, which failures it
// is prone to, and what helps against each. Facts only: detect/ compares them with reports, diagnose/ and people read
// them. Verified against real passes of a small model of each entry (tests/python/test_architectures.py).
//
// Pure; thread-safe; everything returned lives as long as the program. methods.md §5.2 has the derivations.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "model/intervention.h"
#include "model/model_spec.h"

namespace gyrostat::model {

// How a quantity runs over depth. With s_0 the value at the input of the first layer and l counting layers from 1:
// constant s_0; linear s_0 (1 + k l); exponential s_0 e^(c l); logarithmic s_0 (1 + k H_l), H_l = 1 + 1/2 + ... + 1/l.
enum class ProfileLaw : uint8_t {
  kUnknown, kConstant, kLinear, kExponential, kLogarithmic,
  kConstantThenLinear,  // Constant up to the split, linear in the layers behind it.
};
const char* Token(ProfileLaw v);  // constant linear exponential logarithmic constant_then_linear

// How the gradient norm of a block's output weights runs over depth, at initialisation.
enum class GradientLaw : uint8_t {
  kUnknown,
  kFlat,                     // The same in each block.
  kInverseStream,            // With s^(-1/2), s the mean square behind the block (Xiong et al. 2020, arXiv 2002.04745).
  kInverseStreamRootDepth,   // With (l s)^(-1/2): LayerNorm scaling divides the branch's input by sqrt(l).
};
const char* Token(GradientLaw v);  // flat inverse_stream inverse_stream_root_depth

enum class Failure : uint8_t {
  kPostNormCollapse,   // Warm-up too fast: tokens become equal, the first blocks' gradients vanish.
  kSlowDivergence,     // The loss creeps up for hundreds of steps while block gradients get rough.
  kAttentionLogits,    // Softmax inputs run away; attention saturates.
  kOutputLogits,       // log Z drifts: the output softmax degenerates.
  kHalfOverflow,       // The residual stream outgrows fp16.
  kDeadDepth,          // Deep layers no longer write into the stream.
  kGradientSpikes,     // Gradient norm, then loss, jump and usually heal.
};
inline constexpr uint32_t kFailures = 7;
const char* Token(Failure v);            // post_norm_collapse slow_divergence attention_logits ...
std::string_view Describe(Failure v);    // A clause for people: "attention logits run away".

struct Architecture {
  std::string_view name = {};  // Of the entry; unique. Placement tokens where there is one entry for a placement.
  NormPlacement placement = NormPlacement::kUnknown;
  std::string_view formula = {};  // Of one layer, x to y.
  bool post_norm_family = false;  // A norm closes each block: its gain alone sets the stream's size.
  ProfileLaw stream = ProfileLaw::kUnknown;          // Of hidden_ms, at initialisation.
  ProfileLaw stream_trained = ProfileLaw::kUnknown;  // What training may make of it without anything being wrong.
  // Linear and logarithmic laws: k at unit-variance input and Xavier weights. 0 elsewhere.
  double step_low = 0, step_high = 0;
  GradientLaw gradient = GradientLaw::kUnknown;
  // Mean square of the sum before the closing norm at initialisation, in units of the squared residual scale (alpha);
  // 0 where no norm closes a block. Of mix: in its post-norm layers.
  double ln_input_ms = 0;
  std::span<const Failure> prone = {};  // Likeliest first.
  std::string_view source = {};
};

// Every entry; the last one is `unknown`, about which nothing is expected.
std::span<const Architecture> Architectures();
const Architecture* FindArchitecture(std::string_view name);  // Null when there is none.
// By preset where it names an entry of its own, else by placement. `unknown` where neither says anything.
const Architecture& ArchitectureOf(const ModelSpec& spec);

// hidden_ms at boundary `boundary` (0..layers) over that at boundary 0. `step` is k; `split` the layers before the
// linear part (only kConstantThenLinear). kUnknown and kExponential have no fixed profile: 0.
double ExpectedStream(ProfileLaw law, uint32_t boundary, double step, uint32_t split);
// Gradient norm of block `layer` (0-based) over that of block 0. 0 where unknown.
double ExpectedGradient(const Architecture& architecture, uint32_t layer, double step, uint32_t split);
// Layers of a mix-LN model that are post-norm: a quarter of them (arXiv 2412.13795), at least 1.
uint32_t MixSplit(uint32_t layers);

// What to do about a failure in this model, or why nothing.
struct Advice {
  std::optional<InterventionKind> kind;
  std::string_view why;  // A sentence, in both cases.
};
Advice AdviceFor(const ModelSpec& spec, Failure failure);

// Whether the placement, or what surrounds it (QK-norm, soft-cap), makes the failure likely in this model.
bool IsProne(const ModelSpec& spec, Failure failure);

}  // namespace gyrostat::model
