// From values and steps to places in a picture, with ticks at round numbers. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/ids.h"

namespace gyrostat::ctl {

struct Tick {
  double share = 0;  // Of the axis: 0 at its low end, 1 at its high end.
  std::string label;
};

enum class ScaleKind {
  kLinear,
  kLogarithmic,  // Wherever there is a positive value; what is not positive lies at the low end.
  kByRange,      // Logarithmic where all values are positive and span more than a factor of 30.
};

// What an axis must show: finite values. Empty until the first.
struct Extent {
  double low = 0, high = 0, low_positive = 0;  // low_positive 0: nothing is positive.
  bool any = false;
  void Add(double value);
};

class ValueAxis {
 public:
  ValueAxis() = default;
  ValueAxis(const Extent& extent, ScaleKind kind);

  double low() const { return low_; }
  double high() const { return high_; }
  bool logarithmic() const { return log_; }
  // A linear axis, or a short logarithmic one, out to round values, so that ticks stand at its ends.
  ValueAxis Rounded() const;
  double Share(double value) const;  // Within [0, 1]; 0 for NaN.
  double At(double share) const;
  // About `wanted` of them, at 1, 2 or 5 times a power of ten.
  std::vector<Tick> Ticks(int wanted) const;

 private:
  double low_ = 0, high_ = 1;
  bool log_ = false;
};

class StepAxis {
 public:
  StepAxis(model::Step first, model::Step last) : first_(first), last_(last) {}

  model::Step first() const { return first_; }
  model::Step last() const { return last_; }
  double Share(model::Step step) const;  // Within [0, 1].
  std::vector<Tick> Ticks(int wanted) const;
  std::vector<model::Step> TickSteps(int wanted) const;

 private:
  model::Step first_, last_;
};

// "1500", "12k", "1.2M": exact, or not shortened.
std::string StepLabel(model::Step step);

}  // namespace gyrostat::ctl
