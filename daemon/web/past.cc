#include "web/past.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "absl/status/status.h"

namespace gyrostat::web {
namespace {

// What Reports may hand over without a report that is wanted, before one gives up.
constexpr size_t kEmptyPagesMax = 1000;

float Larger(float a, float b) {
  if (model::IsAbsent(static_cast<double>(a)) || std::isnan(b)) return b;
  if (model::IsAbsent(static_cast<double>(b)) || std::isnan(a)) return a;
  return std::max(a, b);
}

// One column under way: a row for each layer, and the heads of a layer folded.
struct Column {
  model::Step first = 0;
  std::vector<float> rows;
};

class Builder {
 public:
  explicit Builder(const LayerMapQuery& query)
      : query_(query), width_(static_cast<double>(query.to) - static_cast<double>(query.from) + 1) {}

  size_t ColumnOf(model::Step step) const {
    const double at = (static_cast<double>(step) - static_cast<double>(query_.from)) / width_;
    return std::min(static_cast<size_t>(std::max(at, 0.0) * static_cast<double>(query_.columns)), query_.columns - 1);
  }
  // The first step of a column.
  model::Step FirstOf(size_t column) const {
    return query_.from + static_cast<model::Step>(std::ceil(width_ * static_cast<double>(column) /
                                                            static_cast<double>(query_.columns)));
  }

  void Take(const model::Report& report, engine::Resolution resolution) {
    const std::span<const float> values = report.Array(query_.signal);
    if (values.empty() || report.step < query_.from || report.step > query_.to) return;
    const size_t heads = HeadsOf(values.size()), rows = values.size() / heads;
    if (rows != rows_) {  // The newest shape counts.
      columns_.clear();
      resolution_ = engine::Resolution::kFull;
      rows_ = rows;
    }
    resolution_ = std::max(resolution_, resolution);
    Column& column = columns_[ColumnOf(report.step)];
    if (column.rows.empty()) {
      column.first = report.step;
      column.rows.assign(rows, model::kAbsent);
    }
    column.first = std::min(column.first, report.step);
    for (size_t i = 0; i < values.size(); ++i)
      column.rows[i / heads] = Larger(column.rows[i / heads], values[i]);
  }

  LayerMap Map() const {
    LayerMap map;
    map.rows = rows_;
    map.resolution = resolution_;
    for (const auto& [unused, column] : columns_) {
      map.steps.push_back(column.first);
      map.values.insert(map.values.end(), column.rows.begin(), column.rows.end());
    }
    return map;
  }

 private:
  size_t HeadsOf(size_t size) const {
    const model::SignalInfo* info = model::FindSignal(query_.signal);
    const bool by_head = info != nullptr && (info->shape == model::Shape::kLayerHead ||
                                             info->shape == model::Shape::kLayerOrLayerHead);
    return by_head && query_.layers > 0 && size % query_.layers == 0 ? size / query_.layers : 1;
  }

  const LayerMapQuery& query_;
  const double width_;
  size_t rows_ = 0;
  engine::Resolution resolution_ = engine::Resolution::kFull;
  std::map<size_t, Column> columns_;
};

}  // namespace

absl::StatusOr<StoredReport> ReportAt(engine::History* history, const std::string& run, model::Step step) {
  std::optional<StoredReport> found;
  engine::ReportCursor cursor;
  for (size_t pages = 0; pages < kEmptyPagesMax; ++pages) {
    auto page = history->Reports({.run = run, .from_step = step, .to_step = step}, cursor);
    if (!page.ok()) return page.status();
    if (!page->reports.empty()) found = {std::move(page->reports.back()), page->resolution};
    if (page->end) break;
    cursor = page->next;
  }
  if (found) return *std::move(found);
  return absl::NotFoundError("run " + run + " has no report of step " + std::to_string(step));
}

absl::StatusOr<LayerMap> LayersOverTime(engine::History* history, const LayerMapQuery& query) {
  // First with every report. Where that takes too many pages, again with the first page of each stretch only.
  for (const bool sampled : {false, true}) {
    Builder builder(query);
    engine::ReportQuery wanted{.run = query.run, .from_step = query.from, .to_step = query.to};
    engine::ReportCursor cursor;
    size_t full = 0;
    bool end = false;
    for (size_t pages = 0; !end && full < query.pages_max && pages < kEmptyPagesMax; ++pages) {
      const auto page = history->Reports(wanted, cursor);
      if (!page.ok()) return page.status();
      for (const model::Report& report : page->reports) builder.Take(report, page->resolution);
      full += page->reports.empty() ? 0 : 1;
      end = page->end;
      cursor = page->next;
      if (!sampled || page->reports.empty()) continue;
      const size_t stretch = builder.ColumnOf(page->reports.back().step) * query.pages_max / query.columns + 1;
      const size_t next = (stretch * query.columns + query.pages_max - 1) / query.pages_max;
      if (next >= query.columns) break;
      wanted.from_step = std::max(*wanted.from_step, builder.FirstOf(next));
    }
    if (!end && !sampled) continue;
    LayerMap map = builder.Map();
    map.sampled = sampled;
    return map;
  }
  return LayerMap();
}

}  // namespace gyrostat::web
