// From chunks and reports to the points of one query: the newest value of each step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ports.h"
#include "model/report.h"
#include "store/chunk.h"

namespace gyrostat::store {

// Fed in order of arrival. Not thread-safe.
class SeriesBuilder {
 public:
  // `query` outlives it and has passed CheckQuery (series.h).
  explicit SeriesBuilder(const engine::SeriesQuery& query) : query_(query) {}

  // Of a model of `layers` and `heads` (0: not known).
  void Take(const ChunkColumn& column, uint32_t layers, uint32_t heads);
  void Take(const model::Report& report, uint32_t layers, uint32_t heads);

  // All points, not thinned. The error of the last report that had no such layer or head, if none had one.
  absl::StatusOr<std::vector<engine::SeriesPoint>> Points() const;

 private:
  // Whether the values of an array of that shape are looked up in indices_ now.
  bool Look(size_t size, uint32_t layers, uint32_t heads);
  void TakeSparse(const ChunkColumn& column, uint32_t layers, uint32_t heads);
  void Put(model::Step step, double value);

  const engine::SeriesQuery& query_;
  std::map<model::Step, double> points_;
  absl::Status status_;
  std::optional<absl::StatusOr<std::vector<size_t>>> indices_;  // Ascending; for the three below.
  size_t indices_size_ = 0;
  uint32_t layers_ = 0, heads_ = 0;
};

}  // namespace gyrostat::store
