// The daemon's Prometheus metrics: one text, rendered from copies whenever somebody asks. Ingestion never waits for it.
//
// Series are few by design: per layer at the finest, the worst heads by constant slots, all heads in one histogram.
// Each run and the whole scrape have a cap; what does not fit is left out, the least important first, and counted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/probe.h"
#include "engine/views.h"
#include "telemetry/probe.h"

namespace gyrostat::telemetry {

struct MetricsOptions {
  uint32_t series_per_run_max = 2000;  // 128 layers of 128 heads with every signal need some 1,200. [100, 100000].
  uint32_t series_total_max = 50000;   // All runs of one scrape; live ones come first. [1000, 1000000].
  // A run that ended is shown this long after its last report, so that the last scrapes see its end. [0 s, 7 days].
  base::Milliseconds ended_ttl{15 * 60 * 1000};
  // A run that fell silent without a good-bye goes after this: a killed job never says that it ended. [1 min, 90 days].
  base::Milliseconds silent_ttl{24 * 60 * 60 * 1000};
};

// One number of the daemon itself, from a room's probe. Metrics of one name stand together and differ in labels.
struct OwnMetric {
  std::string name;  // With the room in it: gyrostat_rpc_streams.
  std::string help;
  std::variant<const base::Counter*, const base::Gauge*> value;  // A counter's name ends in _total.
  std::vector<std::pair<std::string, std::string>> labels;
  double scale = 1;  // The counted unit in base units: 1e-6 for microseconds shown as seconds.
};

// What main.cc plugs in. All pointers outlive the Metrics.
struct Sources {
  std::function<std::vector<std::shared_ptr<const engine::RunState>>()> runs;
  std::vector<std::string> detectors;  // Their counters exist from the first scrape on, at 0.
  std::vector<OwnMetric> own;
  std::string version;
};

// Thread-safe.
class Metrics {
 public:
  Metrics(MetricsOptions options, Sources sources, Probe* probe, const base::Clock* clock);
  ~Metrics();

  // Prometheus text format 0.0.4; kContentType names it.
  std::string Text() const;
  // All heads of some layers of one run, for whoever asks for them (kHeadLogitMax). `layers` as in layer_set.h.
  // NOT_FOUND: /metrics shows no such run. INVALID_ARGUMENT says what of `layers` is wrong.
  absl::StatusOr<std::string> HeadsText(const std::string& run, const std::string& layers) const;
  static constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// All metrics there are, one a line, sorted: name, type, labels joined by commas, help, separated by tabs.
std::string ListMetrics(const std::vector<OwnMetric>& own);

}  // namespace gyrostat::telemetry
