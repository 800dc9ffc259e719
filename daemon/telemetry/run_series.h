// One run's newest state → samples, in order of importance, until a budget of series is used up.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/views.h"
#include "prometheus/metric_family.h"
#include "telemetry/catalog.h"
#include "telemetry/layer_set.h"

namespace gyrostat::telemetry {

struct SeriesCount {
  uint32_t taken = 0, dropped = 0;
};

// Appends the run's samples to `families`, which are in order of MetricId, taking at most `budget` series. Absent
// values make no series; NaN and infinities are samples. Returns how many series were taken and how many did not fit.
SeriesCount AppendRun(const engine::RunState& run, std::span<const std::string> detectors, uint32_t budget,
                      std::vector<prometheus::MetricFamily>* families);

// Every head of the layers, by layer and head, at most `budget` series.
SeriesCount AppendHeads(const engine::RunState& run, const LayerSet& layers, uint32_t budget,
                        prometheus::MetricFamily* family);

// Empty families for RunMetrics(), in order.
std::vector<prometheus::MetricFamily> RunFamilies();

prometheus::MetricFamily Family(const char* name, MetricType type, const char* help);

}  // namespace gyrostat::telemetry
