// DeepNorm (Wang et al., arXiv 2203.00555): its constants, and what changing alpha or beta of a running post-norm model
// means. x_(l+1) = LN(alpha x_l + G_l(x_l)). Source of every rule here: methods.md §4, protocol.md §7.
//
// Raising alpha is function-changing: it scales every branch of the layer by alpha_old / alpha_new. It is ramped, and
// becomes part of the checkpoint. The function-preserving variant rescued nothing and is not built. Beta is a factor on
// what the job's own initialisation made of the branches' weights: W_v (its rows of a fused QKV), W_o, W_1, W_2, a
// gate's W_3, and the biases of the output maps W_o and W_2 (methods.md §4.2; not Q and K); all at one boundary, never
// up.
// Both are registers (registers.h), within these bounds.
//
// Pure; thread-safe; no allocation but in sentences. FoldFactor, which touches weights, uses IEEE division alone: the
// same bits on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gyrostat::remedy {

enum class DeepNormArch : uint8_t { kEncoder, kDecoder, kEncoderDecoder };

struct DeepNormConstants {
  double alpha = 1, beta = 1;
  // The paper's bound on the model update in units of what it publishes: 1 as published (1.012 for the encoder of an
  // encoder-decoder, whose constants it rounds), more is weaker.
  double budget = 1;
};
struct DeepNorm {
  std::optional<DeepNormConstants> encoder, decoder;  // As the architecture has them.
};

// Figure 2 of the paper. `layers` of the encoder (or of the only stack), `decoder_layers` of the decoder, which only
// kEncoderDecoder has (0 elsewhere); each 1 to 100,000. Nothing, and a sentence, for others.
std::optional<DeepNorm> DeepNormFor(DeepNormArch arch, uint64_t layers, uint64_t decoder_layers, std::string* why);

// sublayers * (v^2 + w^2) / alpha^2 with v = w = beta (App. C): the update budget of a stack by itself. Two sub-layers
// a layer, three in a decoder that also attends to an encoder.
double UpdateBudget(uint64_t sublayers, double alpha, double beta);

// The relative change of a layer's normalised output per unit of ln(alpha), for a branch of relative size
// rho = |G| / |alpha x|, orthogonal to x: rho / (1 + rho^2), at most 1/2. What the first use is checked against.
double AlphaSensitivity(double rho);

inline constexpr uint32_t kAlphaRampDefault = 50;  // Boundaries; measured on dead_post_ln, protocol.md §7.3 ...
inline constexpr uint32_t kAlphaRampMax = 200;     // ... where slower ramps rescued less and less.
inline constexpr double kAlphaStepMax = 5;         // |delta ln alpha| <= ln 5 in one order.
inline constexpr double kBetaFactorMin = 0.1;      // As much as one clip may take.

// At export: W_o, b_o, W_2 and b_2 of a sub-layer times this restore the declared alpha with the same function (up to
// the norm's eps). Nothing unless both are finite and above 0.
std::optional<float> FoldFactor(double declared_alpha, double alpha);

}  // namespace gyrostat::remedy
