#include "telemetry/metrics.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "absl/status/status.h"
#include "prometheus/collectable.h"
#include "prometheus/text_serializer.h"
#include "telemetry/catalog.h"
#include "telemetry/remote_batch.h"
#include "telemetry/run_series.h"

namespace gyrostat::telemetry {
namespace {

using Runs = std::vector<std::shared_ptr<const engine::RunState>>;

MetricType TypeOf(const OwnMetric& metric) {
  return std::holds_alternative<const base::Counter*>(metric.value) ? MetricType::kCounter : MetricType::kGauge;
}

double ValueOf(const OwnMetric& metric) {
  return metric.scale * std::visit([](const auto* value) { return static_cast<double>(value->value()); }, metric.value);
}

void AppendOwn(const std::vector<OwnMetric>& own, std::vector<prometheus::MetricFamily>* families) {
  for (const OwnMetric& metric : own) {
    if (families->empty() || families->back().name != metric.name)
      families->push_back(Family(metric.name.c_str(), TypeOf(metric), metric.help.c_str()));
    prometheus::ClientMetric& sample = families->back().metric.emplace_back();
    for (const auto& [name, value] : metric.labels) sample.label.push_back({name, value});
    sample.gauge.value = sample.counter.value = ValueOf(metric);
  }
}

}  // namespace

struct Metrics::Impl final : public prometheus::Collectable {
  Impl(MetricsOptions o, Sources s, Probe* p, const base::Clock* c)
      : options(o), sources(std::move(s)), probe(p), clock(c) {}

  // For showing only: a wall clock that jumps hides a run that is over sooner or later, nothing else.
  bool IsShown(const engine::RunState& run) const {
    if (run.life == engine::RunLife::kLive) return true;
    const int64_t age_ms = clock->UnixMs() - run.last_report_unix_ms;
    return age_ms <= (run.life == engine::RunLife::kEnded ? options.ended_ttl : options.silent_ttl).count();
  }

  // Live runs first, so that a cap never hides a run that trains behind one that is over; then by name.
  Runs ShownRuns() const {
    Runs runs = sources.runs();
    std::erase_if(runs, [this](const auto& run) { return !IsShown(*run); });
    std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) {
      return a->life != b->life ? a->life < b->life : a->run < b->run;
    });
    return runs;
  }

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families = RunFamilies();
    uint32_t left = options.series_total_max;
    for (const auto& run : ShownRuns()) {
      const SeriesCount count =
          AppendRun(*run, sources.detectors, std::min(left, options.series_per_run_max), &families);
      left -= count.taken;
      probe->series_dropped_total.Add(count.dropped);
    }
    std::erase_if(families, [](const auto& family) { return family.metric.empty(); });
    AppendOwn(sources.own, &families);
    families.push_back(Family(kBuildInfo.name, kBuildInfo.type, kBuildInfo.help));
    prometheus::ClientMetric& build = families.back().metric.emplace_back();
    build.label.push_back({kBuildInfo.labels, sources.version});
    build.gauge.value = 1;
    return families;
  }

  const MetricsOptions options;
  const Sources sources;
  Probe* const probe;
  const base::Clock* const clock;
};

Metrics::Metrics(MetricsOptions options, Sources sources, Probe* probe, const base::Clock* clock)
    : impl_(std::make_unique<Impl>(options, std::move(sources), probe, clock)) {}
Metrics::~Metrics() = default;

std::string Metrics::Text() const {
  impl_->probe->scrapes_total.Add();
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, impl_->Collect());
  return std::move(text).str();
}

absl::StatusOr<std::string> Metrics::HeadsText(const std::string& run, const std::string& layers) const {
  const absl::StatusOr<LayerSet> wanted = LayerSet::Parse(layers);
  if (!wanted.ok()) return wanted.status();
  const Runs runs = impl_->ShownRuns();
  const auto it = std::find_if(runs.begin(), runs.end(), [&run](const auto& each) { return each->run == run; });
  if (it == runs.end()) return absl::NotFoundError("run: /metrics shows no run of this name");
  std::vector<prometheus::MetricFamily> families = {Family(kHeadLogitMax.name, kHeadLogitMax.type, kHeadLogitMax.help)};
  const SeriesCount count = AppendHeads(**it, *wanted, impl_->options.series_total_max, &families.front());
  impl_->probe->scrapes_total.Add();
  impl_->probe->series_dropped_total.Add(count.dropped);
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return std::move(text).str();
}

std::string ListMetrics(const std::vector<OwnMetric>& own) {
  std::vector<std::string> lines;
  const auto add = [&lines](std::string_view name, MetricType type, std::string_view labels, std::string_view help) {
    std::string line(name);
    line.append("\t").append(Token(type)).append("\t").append(labels).append("\t").append(help).append("\n");
    lines.push_back(std::move(line));
  };
  for (const MetricInfo& info : RunMetrics()) add(info.name, info.type, info.labels, info.help);
  for (const MetricInfo& info : {kHeadLogitMax, kBuildInfo}) add(info.name, info.type, info.labels, info.help);
  for (const RemoteMetric& metric : RemoteOnlyMetrics())
    add(metric.name, MetricType::kGauge, metric.labels, metric.help);
  for (const OwnMetric& metric : own) {
    std::string labels;
    for (const auto& [name, value] : metric.labels) labels.append(labels.empty() ? "" : ",").append(name);
    add(metric.name, TypeOf(metric), labels, metric.help);
  }
  std::sort(lines.begin(), lines.end());
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line;
  return all;
}

}  // namespace gyrostat::telemetry
