// Hands each new call of the training jobs' service its stream (report_stream.h).
#pragma once

#include "rpc/report_stream.h"

namespace gyrostat::rpc {

// Thread-safe.
class ReportService final : public v1::ReportService::CallbackService {
 public:
  // All pointers outlive the gRPC server.
  ReportService(ReportStreamOptions options, engine::Engine* engine, StreamTable* streams, const base::Clock* clock);

  grpc::ServerBidiReactor<v1::ClientMessage, v1::DaemonMessage>* Stream(grpc::CallbackServerContext* context) override;

 private:
  const ReportStreamOptions options_;
  engine::Engine* const engine_;
  StreamTable* const streams_;
  const base::Clock* const clock_;
};

}  // namespace gyrostat::rpc
