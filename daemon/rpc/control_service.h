// The operators' service: looks at runs, reads history, approves, rejects, sets modes.
//
// What the engine knows is answered at once on gRPC's thread; what touches the disk goes through the DiskPool.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/ports.h"
#include "gyrostat/v1/control.grpc.pb.h"
#include "rpc/disk_pool.h"
#include "rpc/probe.h"
#include "rpc/server.h"
#include "rpc/watch_stream.h"

namespace gyrostat::rpc {

struct ControlOptions {
  std::string version;
  uint32_t watchers_max = 64;
};

// Thread-safe.
class ControlService final : public v1::ControlService::CallbackService {
 public:
  // All pointers outlive the gRPC server; so does `status`, which must not block.
  ControlService(ControlOptions options, engine::Engine* engine, engine::History* history, DiskPool* disk,
                 Probe* probe, const base::Clock* clock, std::function<DaemonStatus()> status);

  // What GetStatus tells; known once the port is open, before any call.
  void SetGrpcAddress(const std::string& address);
  // Ends all watches so that the server can stop.
  void StopWatches();

  grpc::ServerUnaryReactor* ListRuns(grpc::CallbackServerContext* context, const v1::ListRunsRequest* request,
                                     v1::ListRunsResponse* response) override;
  grpc::ServerUnaryReactor* GetRun(grpc::CallbackServerContext* context, const v1::GetRunRequest* request,
                                   v1::GetRunResponse* response) override;
  grpc::ServerUnaryReactor* ListFindings(grpc::CallbackServerContext* context, const v1::ListFindingsRequest* request,
                                         v1::ListFindingsResponse* response) override;
  grpc::ServerUnaryReactor* ListEpisodes(grpc::CallbackServerContext* context, const v1::ListEpisodesRequest* request,
                                         v1::ListEpisodesResponse* response) override;
  grpc::ServerUnaryReactor* ListInterventions(grpc::CallbackServerContext* context,
                                              const v1::ListInterventionsRequest* request,
                                              v1::ListInterventionsResponse* response) override;
  grpc::ServerUnaryReactor* Approve(grpc::CallbackServerContext* context, const v1::ApproveRequest* request,
                                    v1::ApproveResponse* response) override;
  grpc::ServerUnaryReactor* Reject(grpc::CallbackServerContext* context, const v1::RejectRequest* request,
                                   v1::RejectResponse* response) override;
  grpc::ServerUnaryReactor* Propose(grpc::CallbackServerContext* context, const v1::ProposeRequest* request,
                                    v1::ProposeResponse* response) override;
  grpc::ServerUnaryReactor* SetMode(grpc::CallbackServerContext* context, const v1::SetModeRequest* request,
                                    v1::SetModeResponse* response) override;
  grpc::ServerWriteReactor<v1::SeriesChunk>* GetSeries(grpc::CallbackServerContext* context,
                                                       const v1::GetSeriesRequest* request) override;
  grpc::ServerWriteReactor<v1::ExportChunk>* Export(grpc::CallbackServerContext* context,
                                                    const v1::ExportRequest* request) override;
  grpc::ServerWriteReactor<v1::RunView>* Watch(grpc::CallbackServerContext* context,
                                               const v1::WatchRequest* request) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;

 private:
  // The run, or NOT_FOUND with up to five known names, or INVALID_ARGUMENT for what cannot be a name.
  absl::StatusOr<std::shared_ptr<const engine::RunState>> FindRun(const std::string& run) const;
  // Runs `job` on the disk's thread and finishes `reactor` with its outcome; RESOURCE_EXHAUSTED when its queue is full.
  void OnDisk(grpc::ServerUnaryReactor* reactor, std::function<absl::Status()> job);
  // Approve and Reject: posts `event`, then answers with the intervention as the journal has it.
  void Settle(grpc::ServerUnaryReactor* reactor, const std::string& id, engine::EventBody event,
              v1::Intervention* response);

  const ControlOptions options_;
  engine::Engine* const engine_;
  engine::History* const history_;
  DiskPool* const disk_;
  Probe* const probe_;
  const base::Clock* const clock_;
  const std::function<DaemonStatus()> status_;
  WatchSet watches_;
  std::atomic<uint32_t> series_open_{0}, exports_open_{0};

  base::Mutex mutex_;
  std::string grpc_address_ GYROSTAT_GUARDED_BY(mutex_);
};

}  // namespace gyrostat::rpc
