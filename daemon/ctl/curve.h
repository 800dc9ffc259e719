// A long series in bounded memory, for a picture: buckets of neighbouring values, merged two by two when there are too
// many. No extreme and no value that is not finite is lost. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/ids.h"

namespace gyrostat::ctl {

class Curve {
 public:
  struct Bucket {
    model::Step first = 0, last = 0;
    double low = 0, high = 0;    // Of the finite values; low > high: there are none.
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

// How an array signal went, layer by layer: the largest value over the heads, in at most `columns_max` columns of time.
class LayerMap {
 public:
  explicit LayerMap(size_t columns_max = 240) : columns_max_(columns_max) {}
  // `values` is layer-major with `layers` layers; absent values are left out.
  void Add(model::Step step, std::span<const float> values, size_t layers);

  size_t layers() const { return layers_; }
  size_t columns() const { return firsts_.size(); }
  model::Step first_step(size_t column) const { return firsts_[column]; }
  // NaN: a value was not finite. kAbsent: none was measured.
  float At(size_t column, size_t layer) const { return cells_[column * layers_ + layer]; }

 private:
  void Halve();

  size_t columns_max_, layers_ = 0;
  uint64_t per_column_ = 1, in_last_ = 0;
  std::vector<model::Step> firsts_;
  std::vector<float> cells_;  // Column-major.
};

}  // namespace gyrostat::ctl
