#include "stats/growth.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace gyrostat::stats {
namespace {

// One-sided 95 %.
constexpr double kZ95 = 1.645;
// Above this autocorrelation the inflation is a guess; 0.95 already makes the error six times larger.
constexpr double kPhiMax = 0.95;

std::optional<double> StepsAt(double from, double to, double slope) {
  if (from >= to) return 0;
  if (!(slope > 0)) return std::nullopt;
  return (to - from) / slope;
}

}  // namespace

std::optional<LineFit> FitLine(std::span<const double> x, std::span<const double> y) {
  const size_t n = x.size();
  if (n < 4 || y.size() != n) return std::nullopt;
  const double count = static_cast<double>(n);
  double mean_x = 0, mean_y = 0;
  for (size_t i = 0; i < n; ++i) mean_x += x[i], mean_y += y[i];
  mean_x /= count, mean_y /= count;
  double sxx = 0, sxy = 0;
  for (size_t i = 0; i < n; ++i) {
    sxx += (x[i] - mean_x) * (x[i] - mean_x);
    sxy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  if (!(sxx > 0)) return std::nullopt;
  LineFit fit;
  fit.slope = sxy / sxx;
  fit.at_last = mean_y + fit.slope * (x[n - 1] - mean_x);
  double rss = 0, lagged = 0, previous = 0;
  for (size_t i = 0; i < n; ++i) {
    const double residual = y[i] - mean_y - fit.slope * (x[i] - mean_x);
    rss += residual * residual;
    lagged += residual * previous;
    previous = residual;
  }
  const double phi = rss > 0 ? std::clamp(lagged / rss, 0.0, kPhiMax) : 0.0;
  fit.slope_se = std::sqrt(rss / (count - 2) / sxx * (1 + phi) / (1 - phi));
  return fit;
}

std::optional<double> GrowthFit::StepsTo(double level) const {
  return StepsAt(line.at_last, exponential ? std::log(level) : level, line.slope);
}

std::optional<double> GrowthFit::StepsToAtSoonest(double level) const {
  return StepsAt(line.at_last, exponential ? std::log(level) : level, line.slope + kZ95 * line.slope_se);
}

bool GrowthFit::Rising() const { return line.slope - kZ95 * line.slope_se > 0; }

std::optional<GrowthFit> FitGrowth(std::span<const double> steps, std::span<const double> log_values) {
  if (log_values.size() > kGrowthPointsMax) return std::nullopt;
  const std::optional<LineFit> in_log = FitLine(steps, log_values);
  if (!in_log) return std::nullopt;
  std::array<double, kGrowthPointsMax> values;
  for (size_t i = 0; i < log_values.size(); ++i) values[i] = std::exp(log_values[i]);
  const std::span<const double> plain(values.data(), log_values.size());
  const std::optional<LineFit> in_value = FitLine(steps, plain);
  if (!in_value) return GrowthFit{true, *in_log};
  // Both judged by their distance in the value itself, the unit of the question.
  double rss_log = 0, rss_value = 0;
  const double last = steps.back();
  for (size_t i = 0; i < plain.size(); ++i) {
    const double back = steps[i] - last;
    const double off_log = plain[i] - std::exp(in_log->at_last + in_log->slope * back);
    const double off_value = plain[i] - (in_value->at_last + in_value->slope * back);
    rss_log += off_log * off_log;
    rss_value += off_value * off_value;
  }
  return rss_value < rss_log ? GrowthFit{false, *in_value} : GrowthFit{true, *in_log};
}

}  // namespace gyrostat::stats
