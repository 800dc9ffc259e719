#include "telemetry/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <sstream>

#include "model/signal.h"

namespace gyrostat::telemetry {
namespace {

using engine::RunLife;
using engine::RunState;
using model::Signal;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class FixedClock final : public base::Clock {
 public:
  base::MonotonicTime Now() const override { return {}; }
  int64_t UnixMs() const override { return unix_ms; }
  int64_t unix_ms = 1'700'000'000'000;
};

// A run of `layers` layers and `heads` heads that reports every signal there is a metric for.
RunState FullRun(const std::string& name, uint32_t layers, uint32_t heads) {
  RunState run;
  run.run = name;
  run.step = 42;
  run.last_report_unix_ms = 1'700'000'000'000;
  run.reports_total = 43;
  run.reports_dropped_total = 2;
  run.spec.layers = layers;
  run.spec.heads = heads;
  for (const Signal s : {Signal::kLoss, Signal::kLearningRate, Signal::kGradNorm, Signal::kSpikeScoreLoss,
                         Signal::kSpikeScoreGradNorm})
    run.last.SetScalar(s, 0.5);
  run.last.MutableArray(Signal::kLayerGradNorm).assign(layers, 1);
  for (const Signal s : {Signal::kHiddenMs, Signal::kHiddenAbsmax}) run.last.MutableArray(s).assign(layers + 1, 4);
  for (const Signal s : {Signal::kAttnOutMs, Signal::kMlpOutMs, Signal::kLnInputMs})
    run.last.MutableArray(s).assign(layers, 9);
  run.last.MutableArray(Signal::kAttnLogitMax).assign(size_t{layers} * heads, 7);
  for (uint32_t i = 0; i < 8; ++i) run.worst_heads.push_back({i, 1, 7});
  run.attn_logit_histogram.assign(std::size(engine::kAttnLogitBuckets) + 1, 1);
  run.attn_logit_sum = 100;
  run.headroom_steps = 350;
  return run;
}

struct Rig {
  explicit Rig(std::vector<RunState> states, MetricsOptions options = {})
      : metrics(options, {[this] { return runs; }, {"loss_spike", "attn_logit"}, {}, "1.2.3"}, &probe, &clock) {
    for (RunState& state : states) runs.push_back(std::make_shared<const RunState>(std::move(state)));
  }
  // Lines that are no comment; those of one metric where `name` is given.
  std::vector<std::string> Samples(const std::string& name = "") const {
    std::vector<std::string> lines;
    std::istringstream text(metrics.Text());
    for (std::string line; std::getline(text, line);)
      if (line[0] != '#' && (name.empty() || line.rfind(name + "{", 0) == 0)) lines.push_back(line);
    return lines;
  }
  FixedClock clock;
  Probe probe;
  std::vector<std::shared_ptr<const RunState>> runs;
  Metrics metrics;
};

TEST(Metrics, WritesScalarsOfTheNewestReport) {
  const Rig rig({FullRun("a", 2, 2)});
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_step{run=\"a\"} 42"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_loss{run=\"a\"} 0.5"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_last_report_timestamp_seconds{run=\"a\"} 1700000000"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_spike_score_percent{run=\"a\",signal=\"grad_norm\"} 0.5"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_reports_dropped_total{run=\"a\"} 2"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_headroom_steps{run=\"a\"} 350"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_build_info{version=\"1.2.3\"} 1"));
}

TEST(Metrics, WritesNothingForWhatWasNotMeasured) {
  RunState run;
  run.run = "empty";
  run.last.MutableArray(Signal::kLayerGradNorm) = {1, model::kAbsent, 3};
  const Rig rig({run});
  for (const char* name :
       {"gyrostat_step", "gyrostat_loss", "gyrostat_attention_logit_max", "gyrostat_attention_logit_count",
        "gyrostat_hidden_rms", "gyrostat_headroom_steps", "gyrostat_last_report_timestamp_seconds"})
    EXPECT_THAT(rig.Samples(name), IsEmpty()) << name;
  EXPECT_THAT(rig.Samples("gyrostat_layer_grad_norm"),
              testing::ElementsAre("gyrostat_layer_grad_norm{run=\"empty\",layer=\"0\"} 1",
                                   "gyrostat_layer_grad_norm{run=\"empty\",layer=\"2\"} 3"));
  EXPECT_THAT(rig.metrics.Text(), Not(HasSubstr("gyrostat_loss"))) << "not even its help";
}

TEST(Metrics, KeepsNonFiniteValues) {
  RunState run = FullRun("a", 2, 2);
  run.last.SetScalar(Signal::kLoss, std::numeric_limits<double>::quiet_NaN());
  run.last.SetScalar(Signal::kGradNorm, std::numeric_limits<double>::infinity());
  run.last.MutableArray(Signal::kAttnLogitMax) = {1, kNaN, 5, model::kAbsent};
  const Rig rig({run});
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_loss{run=\"a\"} Nan"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_grad_norm{run=\"a\"} +Inf"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_attention_logit_max{run=\"a\",layer=\"0\"} Nan"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_attention_logit_max{run=\"a\",layer=\"1\"} 5"));
}

TEST(Metrics, CreatesKnownCountersAtZero) {
  RunState run = FullRun("a", 2, 2);
  run.findings_total = {{"loss_spike/warning", 3}, {"policy/warning", 1}};
  run.interventions_total = {{"qk_clip/applied", 5}};
  run.outcomes_total = {{"qk_clip/effective", 4}};
  model::Finding open;
  open.detector = "attn_logit";
  open.severity = model::Severity::kCritical;
  run.open_findings = {open, open};
  const Rig rig({run});
  const std::vector<std::string> samples = rig.Samples();
  for (const char* line :
       {"gyrostat_findings_total{run=\"a\",detector=\"loss_spike\",severity=\"warning\"} 3",
        "gyrostat_findings_total{run=\"a\",detector=\"loss_spike\",severity=\"info\"} 0",
        "gyrostat_findings_total{run=\"a\",detector=\"policy\",severity=\"warning\"} 1",
        "gyrostat_finding_active{run=\"a\",detector=\"attn_logit\",severity=\"critical\"} 2",
        "gyrostat_finding_active{run=\"a\",detector=\"attn_logit\",severity=\"info\"} 0",
        "gyrostat_interventions_total{run=\"a\",kind=\"qk_clip\",state=\"applied\"} 5",
        "gyrostat_interventions_total{run=\"a\",kind=\"halt\",state=\"withdrawn\"} 0",
        "gyrostat_intervention_outcomes_total{run=\"a\",kind=\"qk_clip\",outcome=\"effective\"} 4",
        "gyrostat_intervention_outcomes_total{run=\"a\",kind=\"lr_scale\",outcome=\"harmful\"} 0"})
    EXPECT_THAT(samples, Contains(line));
  EXPECT_EQ(rig.Samples("gyrostat_interventions_total").size(), 10u * 13u);
}

TEST(Metrics, WritesLayersAndSites) {
  const Rig rig({FullRun("a", 2, 3)});
  EXPECT_THAT(rig.Samples("gyrostat_hidden_rms"),
              testing::UnorderedElementsAre("gyrostat_hidden_rms{run=\"a\",site=\"embedding\",layer=\"0\"} 2",
                                            "gyrostat_hidden_rms{run=\"a\",site=\"residual\",layer=\"0\"} 2",
                                            "gyrostat_hidden_rms{run=\"a\",site=\"residual\",layer=\"1\"} 2",
                                            "gyrostat_hidden_rms{run=\"a\",site=\"attn_out\",layer=\"0\"} 3",
                                            "gyrostat_hidden_rms{run=\"a\",site=\"attn_out\",layer=\"1\"} 3",
                                            "gyrostat_hidden_rms{run=\"a\",site=\"mlp_out\",layer=\"0\"} 3",
                                            "gyrostat_hidden_rms{run=\"a\",site=\"mlp_out\",layer=\"1\"} 3",
                                            "gyrostat_hidden_rms{run=\"a\",site=\"ln_input\",layer=\"0\"} 3",
                                            "gyrostat_hidden_rms{run=\"a\",site=\"ln_input\",layer=\"1\"} 3"));
  RunState outputs = FullRun("b", 2, 3);
  outputs.last.MutableArray(Signal::kHiddenAbsmax) = {8, 9};  // As many as layers: no embedding.
  EXPECT_THAT(Rig({outputs}).Samples("gyrostat_hidden_absmax"),
              testing::ElementsAre("gyrostat_hidden_absmax{run=\"b\",site=\"residual\",layer=\"0\"} 8",
                                   "gyrostat_hidden_absmax{run=\"b\",site=\"residual\",layer=\"1\"} 9"));
}

TEST(Metrics, ShowsTheWorstHeadsBySlot) {
  RunState run = FullRun("a", 2, 2);
  run.worst_heads = {{1, 0, 120.5f}, {0, 1, 99.0f}};
  const Rig rig({run});
  EXPECT_THAT(rig.Samples("gyrostat_attention_logit_top"),
              testing::ElementsAre("gyrostat_attention_logit_top{run=\"a\",slot=\"1\"} 120.5",
                                   "gyrostat_attention_logit_top{run=\"a\",slot=\"2\"} 99"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_attention_logit_top_layer{run=\"a\",slot=\"1\"} 1"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_attention_logit_top_head{run=\"a\",slot=\"2\"} 1"));
}

TEST(Metrics, WritesTheHistogramCumulatively) {
  RunState run = FullRun("a", 2, 2);
  run.attn_logit_histogram.assign(std::size(engine::kAttnLogitBuckets) + 1, 0);
  run.attn_logit_histogram.front() = 2;
  run.attn_logit_histogram[1] = 3;
  run.attn_logit_histogram.back() = 1;
  const Rig rig({run});
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_attention_logit_bucket{run=\"a\",le=\"1\"} 2"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_attention_logit_bucket{run=\"a\",le=\"2\"} 5"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_attention_logit_bucket{run=\"a\",le=\"10000\"} 5"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_attention_logit_bucket{run=\"a\",le=\"+Inf\"} 6"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_attention_logit_count{run=\"a\"} 6"));
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_attention_logit_sum{run=\"a\"} 100"));
}

TEST(Metrics, FitsAModelOf128LayersAndHeadsIntoTheDefaultCap) {
  const Rig rig({FullRun("a", 128, 128)});
  EXPECT_LE(rig.Samples().size(), 2000u);
  EXPECT_EQ(rig.probe.series_dropped_total.value(), 0u);
  EXPECT_EQ(rig.Samples("gyrostat_attention_logit_max").size(), 128u);
}

TEST(Metrics, CutsARunAtItsCapFromTheLeastImportantAndCounts) {
  MetricsOptions options;
  options.series_per_run_max = 2000;
  const Rig rig({FullRun("a", 1000, 4)}, options);
  EXPECT_EQ(rig.Samples().size(), 2000u + 1);  // And build_info.
  const uint64_t dropped = rig.probe.series_dropped_total.value();
  EXPECT_GT(dropped, 3000u);
  EXPECT_EQ(rig.Samples("gyrostat_attention_logit_max").size(), 1000u);
  EXPECT_EQ(rig.probe.series_dropped_total.value(), 2 * dropped) << "the same again for each scrape";
  EXPECT_THAT(rig.Samples("gyrostat_hidden_absmax"), IsEmpty());
}

TEST(Metrics, CutsTheScrapeAtTheTotalCapAndKeepsLiveRunsFirst) {
  RunState over = FullRun("a", 16, 4);
  over.life = RunLife::kEnded;
  MetricsOptions options;
  options.series_total_max = 400;
  const Rig rig({over, FullRun("z", 16, 4)}, options);
  EXPECT_EQ(rig.Samples().size(), 400u + 1);
  EXPECT_THAT(rig.Samples(), Contains("gyrostat_step{run=\"z\"} 42"));
  EXPECT_THAT(rig.Samples("gyrostat_attention_logit_max").size(), 16u) << "the live run is whole";
  EXPECT_GT(rig.probe.series_dropped_total.value(), 0u);
}

TEST(Metrics, ForgetsRunsThatAreOver) {
  RunState ended = FullRun("ended", 2, 2), silent = FullRun("silent", 2, 2);
  ended.life = RunLife::kEnded;
  silent.life = RunLife::kSilent;
  MetricsOptions options;
  options.ended_ttl = base::Milliseconds(1000);
  options.silent_ttl = base::Milliseconds(5000);
  Rig rig({ended, silent, FullRun("live", 2, 2)}, options);
  rig.clock.unix_ms += 1000;
  EXPECT_EQ(rig.Samples("gyrostat_step").size(), 3u);
  rig.clock.unix_ms += 1;
  EXPECT_EQ(rig.Samples("gyrostat_step").size(), 2u);
  rig.clock.unix_ms += 4000;
  EXPECT_THAT(rig.Samples("gyrostat_step"), testing::ElementsAre("gyrostat_step{run=\"live\"} 42"));
}

TEST(Metrics, PublishesTheDaemonsOwnNumbers) {
  FixedClock clock;
  Probe probe;
  base::Counter refused, full, busy_us;
  base::Gauge streams;
  refused.Add(3);
  busy_us.Add(2500000);
  streams.Set(-1);
  const std::vector<OwnMetric> own = {
      {"gyrostat_rpc_refused_total", "Refused.", &refused, {{"reason", "shape"}}, 1},
      {"gyrostat_rpc_refused_total", "Refused.", &full, {{"reason", "full"}}, 1},
      {"gyrostat_rpc_streams", "Open streams.", &streams, {}, 1},
      {"gyrostat_store_busy_seconds_total", "Busy.", &busy_us, {}, 1e-6}};
  const auto no_runs = [] { return std::vector<std::shared_ptr<const RunState>>{}; };
  const Metrics metrics({}, {no_runs, {}, own, "1"}, &probe, &clock);
  EXPECT_THAT(metrics.Text(), HasSubstr("# HELP gyrostat_rpc_refused_total Refused.\n"
                                        "# TYPE gyrostat_rpc_refused_total counter\n"
                                        "gyrostat_rpc_refused_total{reason=\"shape\"} 3\n"
                                        "gyrostat_rpc_refused_total{reason=\"full\"} 0\n"
                                        "# HELP gyrostat_rpc_streams Open streams.\n"
                                        "# TYPE gyrostat_rpc_streams gauge\n"
                                        "gyrostat_rpc_streams -1\n"
                                        "# HELP gyrostat_store_busy_seconds_total Busy.\n"
                                        "# TYPE gyrostat_store_busy_seconds_total counter\n"
                                        "gyrostat_store_busy_seconds_total 2.5\n"));
  EXPECT_THAT(ListMetrics(own), HasSubstr("gyrostat_rpc_refused_total\tcounter\treason\tRefused.\n"
                                          "gyrostat_rpc_streams\tgauge\t\tOpen streams.\n"));
}

TEST(Metrics, ShowsEveryHeadOfTheLayersThatWereAskedFor) {
  RunState run = FullRun("a", 3, 2);
  run.last.MutableArray(Signal::kAttnLogitMax) = {1, 2, 3, kNaN, model::kAbsent, 6};
  const Rig rig({run});
  const std::string name = "gyrostat_head_attention_logit_max";
  EXPECT_EQ(rig.metrics.HeadsText("a", "1-2").value(),
            "# HELP " + name + " Largest attention logit of the head; only on /metrics/heads?run=&layers=.\n" +
                "# TYPE " + name + " gauge\n" +
                name + "{run=\"a\",layer=\"1\",head=\"0\"} 3\n" +
                name + "{run=\"a\",layer=\"1\",head=\"1\"} Nan\n" +
                name + "{run=\"a\",layer=\"2\",head=\"1\"} 6\n");
  EXPECT_THAT(rig.metrics.HeadsText("a", "").value(), HasSubstr(name + "{run=\"a\",layer=\"0\",head=\"0\"} 1\n"));
  EXPECT_THAT(rig.metrics.HeadsText("a", "7").value(), Not(HasSubstr(name + "{")));
  EXPECT_THAT(rig.metrics.Text(), Not(HasSubstr(name))) << "never unasked";
  EXPECT_EQ(rig.metrics.HeadsText("b", "").status().code(), absl::StatusCode::kNotFound);
  for (const char* wrong : {"x", "1-", "-1", "2-1", "1,,2", "1.5", "99999999999999999999", " 1"})
    EXPECT_EQ(rig.metrics.HeadsText("a", wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
}

TEST(Metrics, CutsTheHeadsAtTheTotalCapAndCounts) {
  MetricsOptions options;
  options.series_total_max = 1000;
  const Rig rig({FullRun("a", 64, 32)}, options);
  const std::string text = rig.metrics.HeadsText("a", "").value();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1000 + 2);
  EXPECT_EQ(rig.probe.series_dropped_total.value(), 64u * 32u - 1000u);
}

// What a scrape shows of a run that reports everything, and the list, are the same: names, types and labels.
TEST(Metrics, ListsExactlyWhatItShows) {
  const Rig rig({FullRun("a", 8, 2)});
  std::set<std::string> shown, listed;
  std::istringstream text(rig.metrics.Text() + rig.metrics.HeadsText("a", "").value());
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string hash, type, name, kind;
    words >> hash >> type >> name >> kind;
    if (hash == "#" && type == "TYPE") shown.insert(name + " " + kind);
  }
  std::istringstream list(ListMetrics({}));
  std::string name, kind, rest;
  while (std::getline(list, name, '\t') && std::getline(list, kind, '\t') && std::getline(list, rest))
    if (rest.find("only by remote write") == std::string::npos) listed.insert(name + " " + kind);
  EXPECT_EQ(shown, listed);
}

TEST(Metrics, EscapesWhatAClientMayHaveNamed) {
  RunState run = FullRun("a", 1, 1);
  run.findings_total = {{"x\"y\nz\\/info", 1}};
  const Rig rig({run});
  EXPECT_THAT(rig.Samples(),
              Contains("gyrostat_findings_total{run=\"a\",detector=\"x\\\"y\\nz\\\\\",severity=\"info\"} 1"));
}

}  // namespace
}  // namespace gyrostat::telemetry
