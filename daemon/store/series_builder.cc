#include "store/series_builder.h"

#include <algorithm>
#include <utility>

#include "store/series.h"

namespace gyrostat::store {

void SeriesBuilder::Take(const ChunkColumn& column, uint32_t layers, uint32_t heads) {
  if (column.sparse) return TakeSparse(column, layers, heads);
  const size_t reports = column.steps.size();
  for (size_t r = 0; r < reports; ++r) {
    if (column.sizes[r] == 0 || !Look(column.sizes[r], layers, heads)) continue;
    double value = static_cast<double>(model::kAbsent);
    for (const size_t i : **indices_) value = Larger(value, column.values[i * reports + r]);
    Put(column.steps[r], value);
  }
}

void SeriesBuilder::TakeSparse(const ChunkColumn& column, uint32_t layers, uint32_t heads) {
  size_t at = 0;
  for (size_t r = 0; r < column.steps.size(); ++r) {
    const bool known = column.sizes[r] > 0 && Look(column.sizes[r], layers, heads);
    double value = static_cast<double>(model::kAbsent);
    for (; at < column.kept.size() && column.kept[at].report == r; ++at) {
      if (!known || !std::ranges::binary_search(**indices_, size_t{column.kept[at].index})) continue;
      value = Larger(value, static_cast<double>(column.kept[at].value));
    }
    if (known) Put(column.steps[r], value);
  }
}

void SeriesBuilder::Take(const model::Report& report, uint32_t layers, uint32_t heads) {
  if (model::IsArray(query_.signal)) {
    const auto array = report.Array(query_.signal);
    if (array.empty() || !Look(array.size(), layers, heads)) return;
    double value = static_cast<double>(model::kAbsent);
    for (const size_t i : **indices_) value = Larger(value, static_cast<double>(array[i]));
    Put(report.step, value);
  } else if (model::IsScalar(query_.signal)) {
    Put(report.step, report.Scalar(query_.signal));
  } else {
    for (const auto& [name, value] : report.user)
      if (name == query_.user_name) Put(report.step, value);
  }
}

absl::StatusOr<std::vector<engine::SeriesPoint>> SeriesBuilder::Points() const {
  if (points_.empty() && !status_.ok()) return status_;
  std::vector<engine::SeriesPoint> points;
  points.reserve(points_.size());
  for (const auto& [step, value] : points_) points.push_back({step, value});
  return points;
}

bool SeriesBuilder::Look(size_t size, uint32_t layers, uint32_t heads) {
  if (!indices_ || size != indices_size_ || layers != layers_ || heads != heads_) {
    indices_ = size == 1 && !model::IsArray(query_.signal) ? std::vector<size_t>{0}
                                                           : IndicesOf(query_, size, layers, heads);
    indices_size_ = size, layers_ = layers, heads_ = heads;
  }
  if (!indices_->ok()) status_ = indices_->status();
  return indices_->ok();
}

void SeriesBuilder::Put(model::Step step, double value) {
  if (step < query_.from_step.value_or(step) || step > query_.to_step.value_or(step)) return;
  if (!model::IsAbsent(value)) points_[step] = value;
}

}  // namespace gyrostat::store
