// A long series in bounded memory, for a picture: buckets of neighbouring values, merged two by two when there are too
// many. No extreme and no value that is not finite is lost. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ctl/axis.h"
#include "model/ids.h"

namespace gyrostat::ctl {

class Curve {
 public:
  struct Bucket {
    model::Step first = 0, last = 0;
    double low = 0, high = 0;    // Of the finite values; low > high: there are none.
    model::Step low_at = 0, high_at = 0;  // The first step of each.
    uint64_t values = 0, nonfinite = 0;
  };

  explicit Curve(size_t buckets_max = 1024) : buckets_max_(buckets_max) {}
  void Add(model::Step step, double value);

  std::span<const Bucket> buckets() const { return buckets_; }
  uint64_t values() const { return values_; }
  // Of all values; NaN where there is none.
  double first_value() const { return first_; }
  double last_value() const { return last_; }
  // The highest value of each bucket, NaN where a value was not finite: what a sparkline shows.
  std::vector<double> Highs() const;

 private:
  size_t buckets_max_;
  uint64_t per_bucket_ = 1, values_ = 0;
  double first_ = 0, last_ = 0;
  std::vector<Bucket> buckets_;
};

Extent ExtentOf(const Curve& curve);

// An axis for the curve. kByRange also takes logarithms of positive values most of which a linear axis would press
// flat: a loss of 30 in the first steps, and 1.2 ever after.
ValueAxis AxisOf(const Curve& curve, ScaleKind kind);

// Which end of an array signal is the one to look at: of attention entropies the lowest, of all else the highest.
enum class Worst { kHighest, kLowest };

// The worse of two. NaN is worst of all; what was not measured never wins.
float Worse(Worst worst, float a, float b);
// Whether `a` is worse than `b`. A strict order.
bool Precedes(Worst worst, float a, float b);

// How an array signal went, layer by layer: the worst value over the heads, in at most `columns_max` columns of time.
class LayerMap {
 public:
  explicit LayerMap(Worst worst = Worst::kHighest, size_t columns_max = 240)
      : worst_(worst), columns_max_(columns_max) {}
  // `values` is layer-major with `layers` layers; absent values are left out.
  void Add(model::Step step, std::span<const float> values, size_t layers);

  Worst worst() const { return worst_; }
  size_t layers() const { return layers_; }
  size_t columns() const { return firsts_.size(); }
  model::Step first_step(size_t column) const { return firsts_[column]; }
  // NaN: a value was not finite. kAbsent: none was measured.
  float At(size_t column, size_t layer) const { return cells_[column * layers_ + layer]; }

 private:
  void Halve();

  Worst worst_;
  size_t columns_max_, layers_ = 0;
  uint64_t per_column_ = 1, in_last_ = 0;
  std::vector<model::Step> firsts_;
  std::vector<float> cells_;  // Column-major.
};

// The worst value that each head ever had, and when.
class HeadMap {
 public:
  struct Peak {
    float value = 0;  // NaN: not finite, from `step` on. kAbsent: never measured.
    model::Step step = 0;
  };
  explicit HeadMap(Worst worst = Worst::kHighest) : worst_(worst) {}
  // As LayerMap's.
  void Add(model::Step step, std::span<const float> values, size_t layers);

  size_t layers() const { return layers_; }
  size_t heads() const { return layers_ == 0 ? 0 : peaks_.size() / layers_; }
  Worst worst() const { return worst_; }
  const Peak& At(size_t layer, size_t head) const { return peaks_[layer * heads() + head]; }

 private:
  Worst worst_;
  size_t layers_ = 0;
  std::vector<Peak> peaks_;
};

}  // namespace gyrostat::ctl
