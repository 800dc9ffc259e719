// Which law a positive quantity follows over depth: constant, linear, exponential or logarithmic.
//
// The idea: each law is a curve with at most two parameters for y_l = ln s_l, fitted by least squares in y, so that a
// factor counts the same at every depth. Linear against exponential is decided by the difference of profile
// log-likelihoods D = (n/2) ln(RSS_exp / RSS_lin), the same number of parameters on both sides; constant wins where
// neither earns its second parameter (BIC). methods.md §5.4 has the error rates: reliable from 12 layers on while the
// noise of ln s is at most 0.1.
//
// Pure; thread-safe; nothing allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace gyrostat::stats {

enum class DepthLaw : uint8_t { kConstant, kLinear, kExponential, kLogarithmic };

struct DepthFit {
  // Residual sums of squares of ln s, never below what rounding in the input explains.
  double rss_constant = 0, rss_linear = 0, rss_exponential = 0, rss_logarithmic = 0;
  double k_linear = 0;       // s_0 (1 + k l), k >= 0.
  double k_logarithmic = 0;  // s_0 (1 + k H_l), k >= 0.
  double c = 0;              // s_0 e^(c l): growth in nats per layer. May be negative.
  double preference = 0;     // D in nats: above 0 linear is likelier than exponential.
  DepthLaw best = DepthLaw::kConstant;  // Smallest BIC of the four.
  double margin = 0;         // By how many nats (half the BIC difference) it beats the next.
};

// `logs` are ln s_l for l = first, first + 1, ...; first is 0 for boundaries and 1 for outputs of blocks. All finite.
// Nothing with fewer than 4 values.
std::optional<DepthFit> FitDepth(std::span<const double> logs, uint32_t first);

}  // namespace gyrostat::stats
