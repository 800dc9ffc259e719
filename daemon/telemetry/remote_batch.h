// Reports → the samples of Prometheus's remote write, at full resolution.
//
// A value of every signal, under the name that /metrics has where it has one; heads by themselves under that of
// /metrics/heads. A value that is absent is no sample; NaN is one. Times are those of arrival at the daemon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "model/model_spec.h"
#include "model/report.h"

namespace prometheus {
class WriteRequest;
}

namespace gyrostat::telemetry {

// Whose reports they are. Pointers outlive the call.
struct BatchOf {
  const std::string& run;
  const model::ModelSpec& spec;
  const std::set<model::Signal>& signals;  // Empty: all. User scalars come under kNone.
};

// How many of the first reports may go into one batch: arrays of one shape, and `samples_max` samples or less, but at
// least one report.
size_t BatchSize(const BatchOf& of, std::span<const model::Report> reports, size_t samples_max);

// Calls `take` with requests of at most `samples_max` samples that together hold all values of the reports, series by
// series, the samples of a series in the order of `unix_ms`, which rises. False from `take` ends it. Reports are one
// batch of BatchSize.
using TakeRequest = std::function<bool(const prometheus::WriteRequest& request, size_t samples)>;
bool ForEachRequest(const BatchOf& of, std::span<const model::Report> reports, std::span<const int64_t> unix_ms,
                    size_t samples_max, const TakeRequest& take);

// Metrics that only remote write has, one a line: name, labels joined by commas, help, separated by tabs.
struct RemoteMetric {
  const char* name;
  const char* labels;
  const char* help;
};
std::span<const RemoteMetric> RemoteOnlyMetrics();

}  // namespace gyrostat::telemetry
