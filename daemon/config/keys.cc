#include "config/keys.h"

#include "base/endpoint.h"
#include "config/detect_keys.h"
#include "config/key_types.h"
#include "config/notify_keys.h"
#include "config/run_keys.h"
#include "post/http_post.h"
#include "rpc/listen_address.h"

namespace gyrostat::config {
namespace {

using base::LogLevel;

std::string GrpcAddressProblem(const std::string& text) {
  return std::string(rpc::ParseListenAddress(text).status().message());
}

std::string HttpAddressProblem(const std::string& text) {
  std::string error;
  return base::ParseLoopbackEndpoint(text, &error) ? "" : error;
}

void AppendFrontKeys(std::vector<Key>* keys) {
  keys->push_back(TextKey(
      "listen.grpc", "Where training jobs and gyrostatctl connect. Port 0: any free one.",
      "a loopback HOST:PORT or unix:PATH",
      GrpcAddressProblem, [](auto& c) -> auto& { return c.rpc.listen; }, Change::kRestart));
  keys->push_back(TextKey(
      "listen.http", "Where /metrics, /healthz and /readyz are. Port 0: any free one.", "a loopback HOST:PORT",
      HttpAddressProblem, [](auto& c) -> auto& { return c.http_listen; }, Change::kRestart));
  keys->push_back(TextKey(
      "data_dir",
      "Everything that is kept: journal, history, endpoints.json. One daemon at a time. Empty: "
      "$XDG_STATE_HOME/gyrostat, else ~/.local/state/gyrostat; for root, /var/lib/gyrostat.",
      "a directory", PathProblem, [](auto& c) -> auto& { return c.data_dir; }, Change::kRestart));
  keys->push_back(ChoiceKey<LogLevel>(
      "log.level", "What is logged, to standard error. debug: each decision. trace: each report.",
      {{"trace", LogLevel::kTrace},
       {"debug", LogLevel::kDebug},
       {"info", LogLevel::kInfo},
       {"warn", LogLevel::kWarn},
       {"error", LogLevel::kError}},
      [](auto& c) -> auto& { return c.log_level; }, Change::kReload));
}

void AppendEngineKeys(std::vector<Key>* keys) {
  keys->push_back(IntegerKey(
      "engine.shards", "Threads that judge. A run belongs to one of them.", 1, 64,
      [](auto& c) -> auto& { return c.engine.shards; }, Change::kRestart));
  keys->push_back(IntegerKey(
      "engine.queue_capacity_events",
      "Events that may wait for a shard. Beyond it, streams are slowed down; nothing is lost.", 16, 1000000,
      [](auto& c) -> auto& { return c.engine.queue_capacity_events; }, Change::kRestart));
  keys->push_back(IntegerKey(
      "engine.runs_max",
      "Runs at a time, ended ones not counted. More are refused, as they are when there are 9 times as many in all.", 1,
      100000,
      [](auto& c) -> auto& { return c.engine.runs_max; }, Change::kRestart));
  keys->push_back(IntegerKey(
      "engine.snapshot_every_reports",
      "How often a run's state is written whole; a restart replays at most so many reports of it.", 1, 10000,
      [](auto& c) -> auto& { return c.engine.snapshot_every_reports; }, Change::kRestart));
  keys->push_back(DurationKey(
      "engine.tick_ms", "How often the daemon looks for silent runs.", 50, 60000, 1,
      [](auto& c) -> auto& { return c.engine.tick; }, Change::kRestart));
}

void AppendStoreKeys(std::vector<Key>* keys) {
  keys->push_back(IntegerKey(
      "store.queue_capacity_entries", "Journal entries that may wait to be written; beyond it judging waits.", 16,
      1000000, [](auto& c) -> auto& { return c.store.queue_capacity_entries; }, Change::kRestart));
}

void AppendHistoryKeys(std::vector<Key>* keys) {
  const auto integer = [keys](const char* name, const char* description, int64_t min, int64_t max, auto get) {
    keys->push_back(IntegerKey(name, description, min, max, get, Change::kRestart));
  };
  integer("history.full_reports", "Newest reports of a run that are kept whole.", 64, 1'000'000'000,
          [](auto& c) -> auto& { return c.store.retention.full_reports; });
  integer("history.heads_reports",
          "And so many without most heads: the worst of each layer, and the worst of all. What is older keeps the "
          "smallest and the largest value of every 16 reports.", 64, 1'000'000'000,
          [](auto& c) -> auto& { return c.store.retention.heads_reports; });
  integer("history.run_max_mib", "Of one run. Above it old history is reduced sooner, then dropped, and that is told.",
          1, 100'000'000, [](auto& c) -> auto& { return c.store.retention.run_max_mib; });
  integer("history.total_max_mib", "Of all runs together; the largest gives first.", 1, 100'000'000,
          [](auto& c) -> auto& { return c.store.retention.total_max_mib; });
  integer("history.ended_days",
          "A run of which nothing came for so long loses its signals; findings and interventions stay. 0: never.", 0,
          36'500, [](auto& c) -> auto& { return c.store.retention.ended_days; });
}

void AppendRpcKeys(std::vector<Key>* keys) {
  keys->push_back(IntegerKey(
      "rpc.streams_max", "Training jobs connected at a time. More are refused.", 1, 100000,
      [](auto& c) -> auto& { return c.rpc.streams_max; }, Change::kRestart));
  keys->push_back(IntegerKey(
      "rpc.watchers_max", "gyrostatctl watch at a time.", 1, 10000, [](auto& c) -> auto& { return c.rpc.watchers_max; },
      Change::kRestart));
  keys->push_back(IntegerKey(
      "rpc.memory_max_mib", "Memory for what connections send and are sent; beyond it they are slowed down.", 64, 65536,
      [](auto& c) -> auto& { return c.rpc.memory_max_mib; }, Change::kRestart));
  keys->push_back(DurationKey(
      "rpc.hello_deadline_ms", "A job that has not said what it is by then is disconnected.", 100, 600000, 1,
      [](auto& c) -> auto& { return c.rpc.hello_deadline; }, Change::kRestart));
}

void AppendTelemetryKeys(std::vector<Key>* keys) {
  keys->push_back(IntegerKey(
      "telemetry.series_per_run_max", "Series of one run on /metrics. What does not fit is left out and counted.",
      100, 100000, [](auto& c) -> auto& { return c.telemetry.series_per_run_max; }, Change::kRestart));
  keys->push_back(IntegerKey(
      "telemetry.series_total_max", "Series of all runs together; live runs come first.", 1000, 1000000,
      [](auto& c) -> auto& { return c.telemetry.series_total_max; }, Change::kRestart));
  keys->push_back(DurationKey(
      "telemetry.ended_ttl_s", "A run that ended leaves /metrics so long after its last report.", 0, 604800, 1000,
      [](auto& c) -> auto& { return c.telemetry.ended_ttl; }, Change::kRestart));
  keys->push_back(DurationKey(
      "telemetry.silent_ttl_s", "A run that fell silent without a good-bye leaves it after this.", 60, 7776000, 1000,
      [](auto& c) -> auto& { return c.telemetry.silent_ttl; }, Change::kRestart));
}

std::vector<Choice<model::Signal>> SignalChoices() {
  std::vector<Choice<model::Signal>> choices;
  for (const model::SignalInfo& info : model::Signals()) choices.emplace_back(std::string(info.name), info.signal);
  choices.emplace_back("user", model::Signal::kNone);
  return choices;
}

void AppendRemoteWriteKeys(std::vector<Key>* keys) {
  const auto text = [keys](const char* name, const char* description, const char* accepted,
                           std::string (*problem)(const std::string&), auto get) {
    keys->push_back(TextKey(name, description, accepted, problem, get, Change::kRestart));
  };
  text("remote_write.url",
       "Where every value goes by Prometheus's remote write, such as http://HOST:8428/api/v1/write. Empty: nowhere.",
       "a URL of http or https without credentials", post::UrlProblem,
       [](auto& c) -> auto& { return c.remote_write.endpoint.url; });
  text("remote_write.token_file", "File with a bearer token; it is read for each request. Empty: none.", "a file",
       PathProblem, [](auto& c) -> auto& { return c.remote_write.endpoint.token_file; });
  text("remote_write.username", "Name for basic authentication, where there is no token_file.", "a name", PathProblem,
       [](auto& c) -> auto& { return c.remote_write.endpoint.username; });
  text("remote_write.password_file", "File with its password; it is read for each request.", "a file", PathProblem,
       [](auto& c) -> auto& { return c.remote_write.endpoint.password_file; });
  text("remote_write.ca_file", "Certificates that sign the endpoint's, PEM. Empty: the system's.", "a file",
       PathProblem, [](auto& c) -> auto& { return c.remote_write.endpoint.ca_file; });
  keys->push_back(ChoicesKey<model::Signal>(
      "remote_write.signals", "What is sent; user: scalars under names of the job's own. Empty: everything.",
      SignalChoices(), [](auto& c) -> auto& { return c.remote_write.signals; }, Change::kRestart));
  keys->push_back(IntegerKey(
      "remote_write.batch_samples", "Samples in one request, at most.", 100, 200000,
      [](auto& c) -> auto& { return c.remote_write.batch_samples; }, Change::kRestart));
  keys->push_back(DurationKey(
      "remote_write.poll_ms", "How soon a new report is looked for.", 50, 60000, 1,
      [](auto& c) -> auto& { return c.remote_write.poll; }, Change::kRestart));
  keys->push_back(DurationKey(
      "remote_write.timeout_ms", "Time for one request.", 100, 600000, 1,
      [](auto& c) -> auto& { return c.remote_write.endpoint.timeout; }, Change::kRestart));
  keys->push_back(DurationKey(
      "remote_write.backoff_max_ms", "Longest wait before an endpoint that takes nothing is asked again.", 500, 600000,
      1, [](auto& c) -> auto& { return c.remote_write.backoff_max; }, Change::kRestart));
  keys->push_back(IntegerKey(
      "remote_write.max_age_hours", "Reports that came earlier are not sent any more: passed over and counted.", 1,
      87600, [](auto& c) -> auto& { return c.remote_write.max_age_hours; }, Change::kRestart));
}

void AppendWebKeys(std::vector<Key>* keys) {
  keys->push_back(IntegerKey(
      "web.threads", "HTTP requests answered at the same time.", 1, 64,
      [](auto& c) -> auto& { return c.web.threads; }, Change::kRestart));
  keys->push_back(IntegerKey(
      "web.connections_waiting_max", "HTTP connections that may wait. More are closed unread.", 1, 4096,
      [](auto& c) -> auto& { return c.web.connections_waiting_max; }, Change::kRestart));
  keys->push_back(DurationKey(
      "web.request_timeout_ms", "Time for a whole HTTP request, and again for its answer.", 100, 60000, 1,
      [](auto& c) -> auto& { return c.web.request_timeout; }, Change::kRestart));
}

std::vector<Key> MakeKeys() {
  std::vector<Key> keys;
  AppendFrontKeys(&keys);
  AppendPolicyKeys(&keys);
  AppendDetectKeys(&keys);
  AppendEngineKeys(&keys);
  AppendStoreKeys(&keys);
  AppendHistoryKeys(&keys);
  AppendRpcKeys(&keys);
  AppendTelemetryKeys(&keys);
  AppendRemoteWriteKeys(&keys);
  AppendNotifyKeys(&keys);
  AppendWebKeys(&keys);
  return keys;
}

std::vector<Order> MakeOrders() {
  std::vector<Order> orders;
  AppendDetectOrders(&orders);
  orders.push_back({"history.full_reports", "history.heads_reports", [](const Config& c) {
                      return c.store.retention.full_reports <= c.store.retention.heads_reports;
                    }});
  orders.push_back({"history.run_max_mib", "history.total_max_mib", [](const Config& c) {
                      return c.store.retention.run_max_mib <= c.store.retention.total_max_mib;
                    }});
  orders.push_back({"telemetry.series_per_run_max", "telemetry.series_total_max",
                    [](const Config& c) { return c.telemetry.series_per_run_max <= c.telemetry.series_total_max; }});
  return orders;
}

}  // namespace

const std::vector<Key>& Keys() {
  static const std::vector<Key> keys = MakeKeys();
  return keys;
}

const std::vector<Order>& Orders() {
  static const std::vector<Order> orders = MakeOrders();
  return orders;
}

}  // namespace gyrostat::config
