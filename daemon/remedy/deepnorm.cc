#include "remedy/deepnorm.h"

#include <cmath>
#include <limits>

namespace gyrostat::remedy {
namespace {

constexpr uint64_t kLayersMax = 100000;

bool IsAlpha(double alpha) { return std::isfinite(alpha) && alpha >= std::numeric_limits<double>::min(); }

// A stack by itself of N layers: alpha = (2N)^(1/4), beta = (8N)^(-1/4).
DeepNormConstants Alone(double layers, uint64_t count) {
  DeepNormConstants c{.alpha = std::pow(2 * layers, 0.25), .beta = std::pow(8 * layers, -0.25)};
  c.budget = UpdateBudget(2 * count, c.alpha, c.beta);
  return c;
}

}  // namespace

double UpdateBudget(uint64_t sublayers, double alpha, double beta) {
  return static_cast<double>(sublayers) * 2 * beta * beta / (alpha * alpha);
}

std::optional<DeepNorm> DeepNormFor(DeepNormArch arch, uint64_t layers, uint64_t decoder_layers, std::string* why) {
  const bool both = arch == DeepNormArch::kEncoderDecoder;
  if (layers < 1 || layers > kLayersMax || (both && (decoder_layers < 1 || decoder_layers > kLayersMax))) {
    *why = std::to_string(layers) + " layers" +
           (both ? " and " + std::to_string(decoder_layers) + " decoder layers" : "") +
           ", wanted 1 to " + std::to_string(kLayersMax);
    return std::nullopt;
  }
  if (!both && decoder_layers != 0) {
    *why = "decoder layers are counted apart only in an encoder-decoder";
    return std::nullopt;
  }
  DeepNorm out;
  const auto n = static_cast<double>(layers), m = static_cast<double>(decoder_layers);
  if (arch == DeepNormArch::kEncoder) out.encoder = Alone(n, layers);
  if (arch == DeepNormArch::kDecoder) out.decoder = Alone(n, layers);
  if (!both) return out;
  DeepNormConstants& decoder = out.decoder.emplace();
  decoder.alpha = std::pow(3 * m, 0.25);
  decoder.beta = std::pow(12 * m, -0.25);
  decoder.budget = UpdateBudget(3 * decoder_layers, decoder.alpha, decoder.beta);
  DeepNormConstants& encoder = out.encoder.emplace();
  const double size = std::pow(n * n * n * n * m, 1.0 / 16);
  encoder.alpha = 0.81 * size;
  encoder.beta = 0.87 / size;
  // What the encoder does reaches the output through M cross-attentions, each v w / alpha of the decoder (App. B).
  const double reached = m * decoder.beta * decoder.beta / decoder.alpha;
  encoder.budget = reached * UpdateBudget(2 * layers, encoder.alpha, encoder.beta);
  return out;
}

double AlphaSensitivity(double rho) { return std::isfinite(rho) ? rho / (1 + rho * rho) : 0; }

std::optional<float> FoldFactor(double declared_alpha, double alpha) {
  if (!IsAlpha(declared_alpha) || !IsAlpha(alpha)) return std::nullopt;
  return static_cast<float>(declared_alpha / alpha);
}

}  // namespace gyrostat::remedy
