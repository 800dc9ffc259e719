#include "service/service.h"

#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/endpoint.h"
#include "base/log.h"
#include "base/mutex.h"
#include "detect/catalog.h"
#include "engine/engine.h"
#include "notify/notifier.h"
#include "notify/tap.h"
#include "rpc/server.h"
#include "rpc/stream_table.h"
#include "service/front_page.h"
#include "service/own_metrics.h"
#include "store/cursor_file.h"
#include "store/store.h"
#include "telemetry/metrics.h"
#include "telemetry/remote_write.h"
#include "web/api.h"
#include "web/event_streams.h"
#include "web/guard.h"
#include "web/page.h"
#include "web/server.h"

namespace gyrostat::service {
namespace {

// Streams get the larger part of kDrainMax: their acknowledgements save the jobs from sending again.
constexpr base::Milliseconds kStreamDrain{3000};

web::Reply Text(int status, std::string body) {
  web::Reply reply;
  reply.status = status;
  reply.body = std::move(body);
  return reply;
}

// Everything that may stand as a finding's detector.
std::vector<std::string> Detectors() {
  std::vector<std::string> names = {"policy"};  // It reports on the loop itself (policy/alarms.h).
  for (const std::string_view name : detect::DetectorNames()) names.emplace_back(name);
  return names;
}

// Why the daemon is not ready, for all threads to read.
class Readiness {
 public:
  void Set(std::string reason) {
    base::MutexLock lock(mutex_);
    reason_ = std::move(reason);
  }
  std::string reason() const {
    base::MutexLock lock(mutex_);
    return reason_;
  }

 private:
  mutable base::Mutex mutex_;
  std::string reason_ GYROSTAT_GUARDED_BY(mutex_) = "starting: stored runs are being brought back";
};

}  // namespace

// Members stand in the order of their lives: what comes later uses what comes before and goes first.
struct Service::Impl {
  Impl(const config::Config& c, std::string v, const base::Clock* k, std::unique_ptr<store::Store> s)
      : config(c),
        version(std::move(v)),
        clock(k),
        started_unix_ms(k->UnixMs()),
        store(std::move(s)),
        notifier(c.notify, NotifySources(), &notify_probe, k),
        tap(store.get(), [this](notify::Change change) { notifier.Tell(std::move(change)); }),
        engine(c.engine, &tap, &streams, k),
        metrics(c.telemetry,
                {[this] { return engine.Runs(); }, Detectors(),
                 OwnMetrics({engine.probe(), streams.probe(), store->probe(), telemetry_probe, web_probe, remote_probe,
                             notify_probe, probe}),
                 version},
                &telemetry_probe, k),
        rpc(WithVersion(c.rpc, version), &engine, store.get(), &streams, k, [this] { return Status(); }),
        events({}, [this](const std::string& run) { return engine.FindRun(run); }, &web_probe, k),
        api({.version = version}, &engine, store.get(), &events, [this] { return NotReadyReason(); }) {}

  static rpc::ServerOptions WithVersion(rpc::ServerOptions options, const std::string& version) {
    options.version = version;
    return options;
  }

  // Empty when ready. A journal that fails makes the daemon not ready: it judges on, but keeps nothing.
  std::string NotReadyReason() const {
    const std::string reason = readiness.reason();
    if (!reason.empty()) return reason;
    if (store->probe().writable.value() == 0)
      return "journal: the last transaction failed (see the log); nothing is recorded and no order is sent";
    return "";
  }

  rpc::DaemonStatus Status() const {
    rpc::DaemonStatus status;
    status.started_at_unix_ms = started_unix_ms;
    status.http_address = endpoints.http;
    status.data_dir = config.data_dir;
    status.journal_queue = static_cast<uint64_t>(store->probe().queue_entries.value());
    status.not_ready_reason = NotReadyReason();
    status.ready = status.not_ready_reason.empty();
    return status;
  }

  web::Reply Heads(const web::Query& query) const {
    const auto run = query.find("run"), layers = query.find("layers");
    if (run == query.end() || query.size() != (layers == query.end() ? 1u : 2u))
      return Text(400, "wanted: /metrics/heads?run=NAME, and perhaps &layers=0-7,12\n");
    const std::string wanted = layers == query.end() ? "" : layers->second;
    const absl::StatusOr<std::string> text = metrics.HeadsText(run->second, wanted);
    if (text.ok()) return {200, telemetry::Metrics::kContentType, *text};
    return Text(absl::IsNotFound(text.status()) ? 404 : 400, std::string(text.status().message()) + "\n");
  }

  std::map<std::string, web::Route> Routes() {
    std::map<std::string, web::Route> routes;
    routes["/healthz"] = [](const web::Query&) { return Text(200, "ok\n"); };
    routes["/readyz"] = [this](const web::Query&) {
      const std::string reason = NotReadyReason();
      return reason.empty() ? Text(200, "ready\n") : Text(503, reason + "\n");
    };
    routes["/metrics"] = [this](const web::Query&) {
      return web::Reply{200, telemetry::Metrics::kContentType, metrics.Text()};
    };
    routes["/metrics/heads"] = [this](const web::Query& query) { return Heads(query); };
    return routes;
  }

  // A browser gets the page, everybody else a text.
  web::Reply Front(const web::Request& request) {
    if (std::optional<web::Reply> page = web::Page(request)) return *std::move(page);
    return Text(200, FrontPage(version, NotReadyReason(), engine.Runs(), web::HasPage()));
  }

  web::Site Site() {
    return {[this](const web::Request& request) { return Front(request); }, web::Refuse,
            [this](const web::Request& request) { return api.Answer(request); }};
  }

  absl::Status Start() {
    std::string problem;
    const std::optional<base::Endpoint> listen = base::ParseLoopbackEndpoint(config.http_listen, &problem);
    if (!listen) return absl::InvalidArgumentError("listen.http: " + problem);
    absl::StatusOr<std::unique_ptr<web::Server>> server =
        web::Server::Start(*listen, config.web, Routes(), &web_probe, clock, Site());
    if (!server.ok()) return server.status();
    http = std::move(*server);
    endpoints.http = http->endpoint().ToString();
    if (const absl::Status restored = engine.Restore(store.get()); !restored.ok()) return restored;
    StartNotifier();
    engine.Start();
    if (const absl::Status sending = StartRemoteWrite(); !sending.ok()) return sending;
    absl::StatusOr<std::string> grpc = rpc.Start();
    if (!grpc.ok()) return grpc.status();
    endpoints.grpc = *std::move(grpc);
    if (const absl::Status written = WriteEndpoints(config.data_dir, endpoints); !written.ok()) return written;
    readiness.Set("");
    return absl::OkStatus();
  }

  notify::Sources NotifySources() {
    return {store.get(), [this] { return engine.Runs(); },
            [this](const std::string& name) {
              return notify_file ? notify_file->Load(name) : absl::StatusOr<std::string>("");
            },
            [this](const std::string& name, const std::string& bytes) {
              return notify_file ? notify_file->Save(name, bytes) : absl::OkStatus();
            },
            "gyrostatd/" + version};
  }

  // Also without webhooks: what happened before there is one is then no news to it. No reason not to watch.
  void StartNotifier() {
    auto opened = store::CursorFile::Open(config.data_dir + "/notify.db");
    if (opened.ok()) {
      notify_file = *std::move(opened);
    } else {
      base::LogError("what was told to webhooks is not remembered: its file cannot be used",
                     {{"reason", std::string(opened.status().message())}});
    }
    notifier.Start();
  }

  absl::Status StartRemoteWrite() {
    telemetry::RemoteWriteOptions options = config.remote_write;
    if (options.endpoint.url.empty()) return absl::OkStatus();
    options.endpoint.user_agent = "gyrostatd/" + version;
    auto opened = store::CursorFile::Open(config.data_dir + "/remote_write.db");
    if (!opened.ok()) return opened.status();
    cursors = *std::move(opened);
    remote_write = std::make_unique<telemetry::RemoteWrite>(
        std::move(options),
        telemetry::RemoteSources{
            store.get(), [this] { return engine.Runs(); },
            [this](const std::string& run) { return cursors->Load(run); },
            [this](const std::string& run, const std::string& bytes) { return cursors->Save(run, bytes); }},
        &remote_probe, clock);
    remote_write->Start();
    return absl::OkStatus();
  }

  void Drain() {
    if (std::exchange(drained, true)) return;
    readiness.Set("stopping");
    rpc.SetServing(false);
    rpc.Stop(kStreamDrain);
    engine.Stop();
    notifier.BeginStop();  // Their times of grace run together.
    if (remote_write) remote_write->Stop();
    notifier.Stop();
    store->Stop();
    if (http) http->Stop();
    events.Stop();
    RemoveEndpoints(config.data_dir);
  }

  const config::Config config;  // As it was at the start.
  const std::string version;
  const base::Clock* const clock;
  const int64_t started_unix_ms;
  Readiness readiness;
  Probe probe;
  telemetry::Probe telemetry_probe;
  telemetry::RemoteProbe remote_probe;
  notify::Probe notify_probe;
  web::Probe web_probe;
  Endpoints endpoints;
  const std::unique_ptr<store::Store> store;
  rpc::StreamTable streams;
  std::unique_ptr<store::CursorFile> notify_file;  // Of the notifier's thread, once that runs.
  notify::Notifier notifier;
  notify::Tap tap;
  engine::Engine engine;
  telemetry::Metrics metrics;
  rpc::Server rpc;
  std::unique_ptr<store::CursorFile> cursors;
  std::unique_ptr<telemetry::RemoteWrite> remote_write;
  web::EventStreams events;
  web::Api api;
  std::unique_ptr<web::Server> http;
  bool drained = false;
};

absl::StatusOr<std::unique_ptr<Service>> Service::Start(const config::Config& config, const std::string& version,
                                                        const base::Clock* clock) {
  base::SetLogLevel(config.log_level);
  store::StoreOptions options = config.store;
  options.data_dir = config.data_dir;
  absl::StatusOr<std::unique_ptr<store::Store>> store = store::Store::Open(options);
  if (!store.ok()) return store.status();
  std::unique_ptr<Service> service(new Service(std::make_unique<Impl>(config, version, clock, std::move(*store))));
  service->impl_->probe.last_reload_successful.Set(1);
  if (const absl::Status started = service->impl_->Start(); !started.ok()) return started;
  base::LogInfo("serving", {{"version", version},
                            {"grpc", service->endpoints().grpc},
                            {"http", service->endpoints().http},
                            {"data_dir", config.data_dir},
                            {"mode", model::Token(service->impl_->engine.start_mode())},
                            {"mode_of_file", model::Token(config.engine.run.policy.mode)}});
  return service;
}

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Service::~Service() { Drain(); }
const Endpoints& Service::endpoints() const { return impl_->endpoints; }
void Service::Drain() { impl_->Drain(); }

void Service::Reload(const absl::StatusOr<config::Config>& config) {
  if (!config.ok()) {
    impl_->probe.reload_failures_total.Add();
    impl_->probe.last_reload_successful.Set(0);
    std::istringstream complaints{std::string(config.status().message())};
    for (std::string line; std::getline(complaints, line);)
      base::LogError("configuration not reloaded, the old one stays", {{"error", line}});
    return;
  }
  for (const std::string& key : config::KeysNeedingRestart(impl_->config, *config))
    base::LogWarn("configuration key changes only at a restart", {{"key", key}});
  base::SetLogLevel(config->log_level);
  impl_->engine.SetRunOptions(config->engine.run);
  impl_->notifier.SetOptions(config->notify);
  impl_->probe.reloads_total.Add();
  impl_->probe.last_reload_successful.Set(1);
  base::LogInfo("configuration reloaded", {{"mode", model::Token(impl_->engine.start_mode())},
                                             {"mode_of_file", model::Token(config->engine.run.policy.mode)}});
}

}  // namespace gyrostat::service
