#include "rpc/report_service.h"

#include <memory>
#include <utility>

namespace gyrostat::rpc {

ReportService::ReportService(ReportStreamOptions options, engine::Engine* engine, StreamTable* streams,
                             const base::Clock* clock)
    : options_(std::move(options)), engine_(engine), streams_(streams), clock_(clock) {}

grpc::ServerBidiReactor<v1::ClientMessage, v1::DaemonMessage>* ReportService::Stream(
    grpc::CallbackServerContext* context) {
  const auto stream = std::make_shared<ReportStream>(options_, context, engine_, streams_, clock_);
  stream->Begin();
  return stream.get();
}

}  // namespace gyrostat::rpc
