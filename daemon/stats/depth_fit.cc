#include "stats/depth_fit.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace gyrostat::stats {
namespace {

// Reported values are floats, often of 3 or 4 digits: residuals below this are rounding.
constexpr double kRoundingVariance = 1e-6;
// ln k is searched here: from no growth at all to a first layer that swamps the input.
constexpr double kLogKMin = -9.2, kLogKMax = 9.2;
constexpr int kGrid = 24, kGoldenSteps = 24;
constexpr double kGolden = 0.6180339887498949;

// Residuals of y - ln(1 + k depth) around their mean.
double RssOfGrowth(std::span<const double> logs, uint32_t first, bool harmonic, double k) {
  double depth = 0, sum = 0, squares = 0;
  if (harmonic)
    for (uint32_t i = 1; i < first; ++i) depth += 1.0 / i;
  for (size_t i = 0; i < logs.size(); ++i) {
    const double l = static_cast<double>(first + i);
    if (!harmonic) depth = l;
    if (harmonic && l > 0) depth += 1 / l;
    const double residual = logs[i] - std::log1p(k * depth);
    sum += residual;
    squares += residual * residual;
  }
  return std::max(0.0, squares - sum * sum / static_cast<double>(logs.size()));
}

// The best k >= 0: a grid over ln k, then golden section around its best point. 0 where no growth fits better.
double FitGrowth(std::span<const double> logs, uint32_t first, bool harmonic, double* rss) {
  const auto at = [&](double log_k) { return RssOfGrowth(logs, first, harmonic, std::exp(log_k)); };
  constexpr double kStep = (kLogKMax - kLogKMin) / kGrid;
  double best = kLogKMin, best_rss = at(best);
  for (int i = 1; i <= kGrid; ++i) {
    const double here = at(kLogKMin + i * kStep);
    if (here < best_rss) best_rss = here, best = kLogKMin + i * kStep;
  }
  double low = best - kStep, high = best + kStep;
  double inner_low = high - kGolden * (high - low), inner_high = low + kGolden * (high - low);
  double rss_low = at(inner_low), rss_high = at(inner_high);
  for (int i = 0; i < kGoldenSteps; ++i) {
    if (rss_low < rss_high) {
      high = inner_high, inner_high = inner_low, rss_high = rss_low;
      inner_low = high - kGolden * (high - low), rss_low = at(inner_low);
    } else {
      low = inner_low, inner_low = inner_high, rss_low = rss_high;
      inner_high = low + kGolden * (high - low), rss_high = at(inner_high);
    }
  }
  best = 0.5 * (low + high);
  *rss = std::min(at(best), RssOfGrowth(logs, first, harmonic, 0));
  return at(best) <= *rss ? std::exp(best) : 0;
}

}  // namespace

std::optional<DepthFit> FitDepth(std::span<const double> logs, uint32_t first) {
  if (logs.size() < 4) return std::nullopt;
  const double n = static_cast<double>(logs.size());
  const double floor = n * kRoundingVariance;
  DepthFit fit;
  double mean = 0, mean_l = 0, sxx = 0, sxy = 0;
  for (size_t i = 0; i < logs.size(); ++i) mean += logs[i] / n, mean_l += static_cast<double>(i) / n;
  for (size_t i = 0; i < logs.size(); ++i) {
    const double l = static_cast<double>(i) - mean_l;
    sxx += l * l;
    sxy += l * (logs[i] - mean);
    fit.rss_constant += (logs[i] - mean) * (logs[i] - mean);
  }
  fit.c = sxy / sxx;
  fit.rss_exponential = std::max(floor, fit.rss_constant - fit.c * sxy);
  fit.k_linear = FitGrowth(logs, first, false, &fit.rss_linear);
  fit.k_logarithmic = FitGrowth(logs, first, true, &fit.rss_logarithmic);
  fit.rss_constant = std::max(floor, fit.rss_constant);
  fit.rss_linear = std::max(floor, fit.rss_linear);
  fit.rss_logarithmic = std::max(floor, fit.rss_logarithmic);
  fit.preference = 0.5 * n * std::log(fit.rss_exponential / fit.rss_linear);
  // Half the BIC: (n/2) ln RSS + (parameters/2) ln n.
  const auto cost = [n](double rss, int parameters) {
    return 0.5 * n * std::log(rss) + 0.5 * parameters * std::log(n);
  };
  const std::array costs = {cost(fit.rss_constant, 1), cost(fit.rss_linear, 2), cost(fit.rss_exponential, 2),
                            cost(fit.rss_logarithmic, 2)};
  std::array sorted = costs;
  std::sort(sorted.begin(), sorted.end());
  const auto best = std::min_element(costs.begin(), costs.end()) - costs.begin();
  fit.best = static_cast<DepthLaw>(best);
  fit.margin = sorted[1] - sorted[0];
  return fit;
}

}  // namespace gyrostat::stats
