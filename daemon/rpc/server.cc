#include "rpc/server.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <chrono>
#include <utility>

#include "base/log.h"
#include "rpc/control_service.h"
#include "rpc/convert.h"
#include "rpc/disk_pool.h"
#include "rpc/listen_address.h"
#include "rpc/report_service.h"

namespace gyrostat::rpc {
namespace {

constexpr size_t kDiskJobsMax = 64;  // People's reads that may wait: a minute's worth at the worst.

// gRPC's own complaints (bad handshakes, mostly a stranger's doing) become debug lines of our log.
void LogFromGrpc(gpr_log_func_args* args) {
  base::LogDebug("grpc", {{"message", args->message}, {"file", args->file}});
}

void SetLimits(const ServerOptions& options, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(static_cast<int>(kMessageBytesMax));
  // A silent connection is found dead within 40 s: a trainer's forked worker can keep a dead trainer's socket open.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // Else pings stop on an idle stream.
  // Our client pings every 20 s; the default of 5 min would send it away for "too many pings".
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 8 << 10);
  // A job needs one, an operator's tool a handful; the bound is against floods of streams opened and reset.
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 16);
  // With it a second daemon would take every other connection of the first instead of failing.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Only reflection is served by synchronous threads.
  builder->SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  grpc::ResourceQuota quota("gyrostatd");
  quota.Resize(size_t{options.memory_max_mib} << 20);
  quota.SetMaxThreads(8);
  builder->SetResourceQuota(quota);
}

ReportStreamOptions StreamOptions(const ServerOptions& options) {
  ReportStreamOptions out;
  out.version = options.version;
  out.streams_max = options.streams_max;
  out.hello_deadline = options.hello_deadline;
  return out;
}

}  // namespace

struct Server::Impl {
  Impl(const ServerOptions& server_options, engine::Engine* engine, engine::History* history, StreamTable* table,
       const base::Clock* clock, std::function<DaemonStatus()> status)
      : options(server_options),
        streams(table),
        disk(kDiskJobsMax),
        report(StreamOptions(options), engine, table, clock),
        control({options.version, options.watchers_max}, engine, history, &disk, &table->probe(), clock,
                std::move(status)) {}

  const ServerOptions options;
  StreamTable* const streams;
  DiskPool disk;
  ReportService report;
  ControlService control;
  std::unique_ptr<grpc::Server> server;  // Before the services in destruction: it calls them.
};

Server::Server(ServerOptions options, engine::Engine* engine, engine::History* history, StreamTable* streams,
               const base::Clock* clock, std::function<DaemonStatus()> status)
    : impl_(std::make_unique<Impl>(options, engine, history, streams, clock, std::move(status))) {}

Server::~Server() { Stop(base::Milliseconds(0)); }

absl::StatusOr<std::string> Server::Start() {
  auto address = ParseListenAddress(impl_->options.listen);
  if (!address.ok()) return absl::InvalidArgumentError("listen.grpc: " + std::string(address.status().message()));
  gpr_set_log_function(LogFromGrpc);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetLimits(impl_->options, &builder);
  int port = 0;
  builder.AddListeningPort(address->Text(), grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&impl_->report);
  builder.RegisterService(&impl_->control);
  impl_->server = builder.BuildAndStart();
  if (impl_->server == nullptr) {
    const std::string why = WhyNotBindable(*address);
    return absl::UnavailableError("cannot listen for gRPC on " + address->Text() + ": " +
                                  (why.empty() ? "gRPC did not say why" : why));
  }
  if (address->unix_path.empty()) address->endpoint.port = static_cast<uint16_t>(port);
  impl_->control.SetGrpcAddress(address->Text());
  return address->Text();
}

void Server::SetServing(bool serving) {
  if (impl_->server != nullptr) impl_->server->GetHealthCheckService()->SetServingStatus(serving);
}

void Server::Stop(base::Milliseconds deadline) {
  if (impl_->server != nullptr) {
    SetServing(false);
    impl_->streams->DrainAll();
    impl_->control.StopWatches();
    impl_->server->Shutdown(gpr_time_from_millis(deadline.count(), GPR_TIMESPAN));
    impl_->server->Wait();
  }
  impl_->disk.Stop();
  impl_->server.reset();
}

Probe& Server::probe() { return impl_->streams->probe(); }

}  // namespace gyrostat::rpc
