// Maps of the past, out of stored reports: all heads at one step, one signal by layer over many steps.
//
// History hands over whole reports, some dozens a page, and a page may cost milliseconds to unpack. So a map reads a
// bounded number of pages, spread evenly over its steps: a short history is read whole, a long one is sampled.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ports.h"
#include "model/report.h"
#include "model/signal.h"

namespace gyrostat::web {

struct StoredReport {
  model::Report report;
  engine::Resolution resolution = engine::Resolution::kFull;  // What retention has left of it.
};
// The newest stored report of a step. NOT_FOUND says that there is none.
absl::StatusOr<StoredReport> ReportAt(engine::History* history, const std::string& run, model::Step step);

struct LayerMapQuery {
  std::string run;
  model::Signal signal = model::Signal::kNone;  // An array.
  size_t layers = 0;                            // Of the model; 0: every value counts as a layer.
  model::Step from = 0, to = 0;                 // Inclusive, from <= to.
  size_t columns = 1;                           // At most so many.
  size_t pages_max = 128;                       // At most so many pages of reports are read.
};
struct LayerMap {
  size_t rows = 0;                  // Values of a column: layers, or boundaries.
  std::vector<model::Step> steps;   // Of each column the first step that is in it; increasing.
  std::vector<float> values;        // Column by column, each from layer 0 up: the largest of all heads and reports in
                                    // it, NaN where one is.
  bool sampled = false;             // Reports were skipped.
  engine::Resolution resolution = engine::Resolution::kFull;  // Of the most reduced report in it.
};
// Reports whose number of values differs from the newest one's (another model under the same name) are left out.
absl::StatusOr<LayerMap> LayersOverTime(engine::History* history, const LayerMapQuery& query);

}  // namespace gyrostat::web
