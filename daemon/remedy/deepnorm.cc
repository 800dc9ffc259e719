#include "remedy/deepnorm.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace gyrostat::remedy {
namespace {

using model::Boundary;

constexpr uint64_t kLayersMax = 100000;

std::string Text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

bool IsAlpha(double alpha) { return std::isfinite(alpha) && alpha >= std::numeric_limits<double>::min(); }

std::string CheckVersion(uint64_t expected, uint64_t version) {
  if (expected == version) return {};
  return "the order expects version " + std::to_string(expected) + ", the register is at " + std::to_string(version);
}

// A stack by itself of N layers: alpha = (2N)^(1/4), beta = (8N)^(-1/4).
DeepNormConstants Alone(double layers, uint64_t count) {
  DeepNormConstants c{.alpha = std::pow(2 * layers, 0.25), .beta = std::pow(8 * layers, -0.25)};
  c.budget = UpdateBudget(2 * count, c.alpha, c.beta);
  return c;
}

// How far ln(alpha) has to go, in ticks: the bound and the ramp count the same.
Ticks Distance(double from, double to) { return LnTicks(std::max(from, to)) - LnTicks(std::min(from, to)); }

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

double AlphaAt(const AlphaRamp& ramp, Boundary at) {
  if (at <= ramp.first || ramp.from == ramp.to) return at < ramp.first || ramp.length != 0 ? ramp.from : ramp.to;
  const uint64_t gone = at - ramp.first;
  if (gone >= ramp.length) return ramp.to;
  // Counted from the larger end, since ExpMinus only shrinks.
  const auto length = static_cast<Ticks>(ramp.length);
  const auto left = static_cast<Ticks>(ramp.to > ramp.from ? ramp.length - gone : gone);
  const double shrunk = std::max(ramp.from, ramp.to) * ExpMinus(Distance(ramp.from, ramp.to) * left / length);
  return std::clamp(shrunk, std::min(ramp.from, ramp.to), std::max(ramp.from, ramp.to));
}

std::string AlphaRegister::Write(double to, uint32_t length, Boundary at, uint64_t expected) {
  if (std::string why = CheckVersion(expected, version_); !why.empty()) return why;
  if (!IsAlpha(to)) return "alpha is " + Text(to) + ", wanted a finite number above 0";
  if (length < 1 || length > kAlphaRampMax)
    return "the ramp is " + std::to_string(length) + " boundaries long, wanted 1 to " + std::to_string(kAlphaRampMax);
  if (version_ != 0 && Ramping(at))
    return "the last ramp runs until boundary " + std::to_string(ramp_.first + ramp_.length) +
           ", wanted an order after it";
  const double from = At(at);
  if (Distance(from, to) > LnTicks(kAlphaStepMax))
    return "alpha goes from " + Text(from) + " to " + Text(to) + ", wanted at most a factor of " + Text(kAlphaStepMax);
  ramp_ = {from, to, at, length};
  ++version_;
  return {};
}

bool AlphaRegister::IsSound() const {
  return IsAlpha(ramp_.from) && IsAlpha(ramp_.to) && ramp_.length <= kAlphaRampMax &&
         Distance(ramp_.from, ramp_.to) <= LnTicks(kAlphaStepMax);
}

std::string BetaRegister::Write(double to, uint64_t expected, float* factor) {
  if (std::string why = CheckVersion(expected, version_); !why.empty()) return why;
  if (!(to > 0 && to <= value_)) return "beta is " + Text(to) + ", wanted above 0 and at most " + Text(value_);
  const double quotient = to / value_;
  if (quotient < kBetaFactorMin)
    return "beta goes from " + Text(value_) + " to " + Text(to) + ", wanted at most a factor of " +
           Text(1 / kBetaFactorMin);
  *factor = static_cast<float>(quotient);
  value_ = to;
  ++version_;
  return {};
}

std::optional<float> FoldFactor(double declared_alpha, double alpha) {
  if (!IsAlpha(declared_alpha) || !IsAlpha(alpha)) return std::nullopt;
  return static_cast<float>(declared_alpha / alpha);
}

}  // namespace gyrostat::remedy
