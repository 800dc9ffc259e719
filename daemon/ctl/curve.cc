#include "ctl/curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/signal.h"

namespace gyrostat::ctl {
namespace {

void Merge(const Curve::Bucket& from, Curve::Bucket* into) {
  into->last = from.last;
  if (from.low < into->low) {
    into->low = from.low;
    into->low_at = from.low_at;
  }
  if (from.high > into->high) {
    into->high = from.high;
    into->high_at = from.high_at;
  }
  into->values += from.values;
  into->nonfinite += from.nonfinite;
}

// Of the height of a linear axis: half of all values lie below.
constexpr double kPressedFlat = 0.08;

// Infinities read as NaN: a picture shows no difference.
float Seen(float value) { return std::isinf(value) ? std::numeric_limits<float>::quiet_NaN() : value; }

}  // namespace

float Worse(Worst worst, float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<float>::quiet_NaN();
  if (model::IsAbsent(static_cast<double>(a))) return b;
  if (model::IsAbsent(static_cast<double>(b))) return a;
  return worst == Worst::kHighest ? std::max(a, b) : std::min(a, b);
}

void Curve::Add(model::Step step, double value) {
  if (values_++ == 0) first_ = value;
  last_ = value;
  Bucket one{step, step, INFINITY, -INFINITY, step, step, 1, 0};
  if (std::isfinite(value)) one.low = one.high = value;
  else one.nonfinite = 1;
  if (!buckets_.empty() && buckets_.back().values < per_bucket_) {
    Merge(one, &buckets_.back());
    return;
  }
  if (buckets_.size() >= buckets_max_) {
    for (size_t i = 0; i + 1 < buckets_.size(); i += 2) {
      Merge(buckets_[i + 1], &buckets_[i]);
      buckets_[i / 2] = buckets_[i];
    }
    buckets_.resize(buckets_.size() / 2);
    per_bucket_ *= 2;
  }
  buckets_.push_back(one);
}

Extent ExtentOf(const Curve& curve) {
  Extent extent;
  for (const Curve::Bucket& each : curve.buckets()) {
    extent.Add(each.low);  // Infinite where there is no finite value, and then not taken.
    extent.Add(each.high);
  }
  return extent;
}

ValueAxis AxisOf(const Curve& curve, ScaleKind kind) {
  const Extent extent = ExtentOf(curve);
  const ValueAxis axis(extent, kind);
  if (kind != ScaleKind::kByRange || axis.logarithmic() || !(extent.low > 0)) return axis;
  std::vector<double> highs;
  for (const Curve::Bucket& each : curve.buckets())
    if (each.low <= each.high) highs.push_back(each.high);
  if (highs.empty()) return axis;
  const auto middle = highs.begin() + static_cast<std::ptrdiff_t>(highs.size() / 2);
  std::nth_element(highs.begin(), middle, highs.end());
  return axis.Share(*middle) < kPressedFlat ? ValueAxis(extent, ScaleKind::kLogarithmic) : axis;
}

bool Precedes(Worst worst, float a, float b) {
  const auto rank = [](float value) {
    return std::isnan(value) ? 0 : model::IsAbsent(static_cast<double>(value)) ? 2 : 1;
  };
  if (rank(a) != 1 || rank(b) != 1) return rank(a) < rank(b);
  return worst == Worst::kHighest ? a > b : a < b;
}

std::vector<double> Curve::Highs() const {
  std::vector<double> highs;
  highs.reserve(buckets_.size());
  for (const Bucket& each : buckets_) highs.push_back(each.nonfinite > 0 ? std::nan("") : each.high);
  return highs;
}

void LayerMap::Halve() {
  const size_t half = columns() / 2;
  for (size_t c = 0; c < half; ++c) {
    firsts_[c] = firsts_[2 * c];
    for (size_t l = 0; l < layers_; ++l) cells_[c * layers_ + l] = Worse(worst_, At(2 * c, l), At(2 * c + 1, l));
  }
  firsts_.resize(half);
  cells_.resize(half * layers_);
  per_column_ *= 2;
  in_last_ = per_column_;
}

void LayerMap::Add(model::Step step, std::span<const float> values, size_t layers) {
  if (layers == 0 || values.size() % layers != 0) return;
  if (layers_ == 0) layers_ = layers;
  if (layers != layers_) return;  // A report of another shape is of another model.
  if (firsts_.empty() || in_last_ >= per_column_) {
    if (columns() >= columns_max_) Halve();
    firsts_.push_back(step);
    cells_.resize(cells_.size() + layers_, model::kAbsent);
    in_last_ = 0;
  }
  ++in_last_;
  const size_t heads = values.size() / layers, base = (columns() - 1) * layers_;
  for (size_t l = 0; l < layers; ++l) {
    float most = model::kAbsent;
    for (const float value : values.subspan(l * heads, heads)) most = Worse(worst_, most, Seen(value));
    cells_[base + l] = Worse(worst_, cells_[base + l], most);
  }
}

void HeadMap::Add(model::Step step, std::span<const float> values, size_t layers) {
  if (layers == 0 || values.size() % layers != 0) return;
  if (layers_ == 0) {
    layers_ = layers;
    peaks_.assign(values.size(), {model::kAbsent, step});
  }
  if (layers != layers_ || values.size() != peaks_.size()) return;
  for (size_t i = 0; i < values.size(); ++i) {
    Peak& peak = peaks_[i];
    const float value = Worse(worst_, peak.value, Seen(values[i]));
    if (value != peak.value && !std::isnan(peak.value)) peak = {value, step};
  }
}

}  // namespace gyrostat::ctl
