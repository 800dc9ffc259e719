// How fast a positive series grows and when it will reach a level: a straight line through ln(value), or through the
// value, whichever fits better, with a standard error that knows that neighbours resemble each other.
//
// Pure; thread-safe; nothing allocates.
#pragma once

#include <optional>
#include <span>

namespace gyrostat::stats {

struct LineFit {
  double at_last = 0;   // The line at the last x.
  double slope = 0;     // Per unit of x.
  double slope_se = 0;  // OLS error times sqrt((1 + phi) / (1 - phi)), phi the residuals' lag-1 autocorrelation.
};

// Ordinary least squares. Nothing with fewer than 4 points, or where all x are equal. x ascending; all finite.
std::optional<LineFit> FitLine(std::span<const double> x, std::span<const double> y);

struct GrowthFit {
  bool exponential = true;  // False: the straight line in the value itself fits better.
  LineFit line;             // Through ln(value) where exponential, else through the value.

  // Steps from the last x until the line reaches `level`: at the slope itself, and at the slope's upper 95 % end
  // (sooner). 0 where it is there already; nothing where it does not rise.
  std::optional<double> StepsTo(double level) const;
  std::optional<double> StepsToAtSoonest(double level) const;
  // Whether the slope's lower 95 % end is above zero.
  bool Rising() const;
};

// `log_values` are ln(value), at most kGrowthPointsMax of them. Nothing where FitLine has nothing.
inline constexpr size_t kGrowthPointsMax = 256;
std::optional<GrowthFit> FitGrowth(std::span<const double> steps, std::span<const double> log_values);

}  // namespace gyrostat::stats
