#include "ctl/grpc_control.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <utility>
#include <vector>

#include "gyrostat/v1/control.grpc.pb.h"

namespace gyrostat::ctl {
namespace {

constexpr int64_t kUnaryLimitSeconds = 10;    // A loaded daemon answers in milliseconds; people wait no longer.
constexpr int64_t kSeriesLimitSeconds = 120;  // A whole run's history may be read from disk.
// A stopped daemon is noticed after 30 s although the kernel still holds its socket open.
constexpr int kKeepaliveMs = 20000, kKeepaliveTimeoutMs = 10000;
constexpr int kMessageBytesMax = 64 << 20;  // Some 100,000 findings in one answer; the default of 4 MiB is too few.

absl::Status ToAbsl(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

class GrpcControl : public Control {
 public:
  GrpcControl(const std::string& address, std::string token) : token_(std::move(token)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // A proxy from the environment never stands before loopback.
    channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    stub_ = v1::ControlService::NewStub(channel_);
  }

  absl::StatusOr<v1::ListRunsResponse> ListRuns() override {
    return Call(&Stub::ListRuns, v1::ListRunsRequest());
  }
  absl::StatusOr<v1::GetRunResponse> GetRun(const std::string& run) override {
    v1::GetRunRequest request;
    request.set_run(run);
    return Call(&Stub::GetRun, request);
  }
  absl::StatusOr<v1::ListFindingsResponse> ListFindings(const v1::ListFindingsRequest& request) override {
    return Call(&Stub::ListFindings, request);
  }
  absl::StatusOr<v1::ListEpisodesResponse> ListEpisodes(const std::string& run) override {
    v1::ListEpisodesRequest request;
    request.set_run(run);
    return Call(&Stub::ListEpisodes, request);
  }
  absl::StatusOr<v1::ListInterventionsResponse> ListInterventions(const std::string& run) override {
    v1::ListInterventionsRequest request;
    request.set_run(run);
    return Call(&Stub::ListInterventions, request);
  }
  absl::StatusOr<v1::ApproveResponse> Approve(const v1::ApproveRequest& request) override {
    return Call(&Stub::Approve, request);
  }
  absl::StatusOr<v1::RejectResponse> Reject(const v1::RejectRequest& request) override {
    return Call(&Stub::Reject, request);
  }
  absl::StatusOr<v1::ProposeResponse> Propose(const v1::ProposeRequest& request) override {
    return Call(&Stub::Propose, request);
  }
  absl::StatusOr<v1::SetModeResponse> SetMode(const v1::SetModeRequest& request) override {
    return Call(&Stub::SetMode, request);
  }
  absl::StatusOr<v1::GetStatusResponse> GetStatus() override {
    return Call(&Stub::GetStatus, v1::GetStatusRequest());
  }

  absl::StatusOr<v1::HistoryNotes> GetSeries(const v1::GetSeriesRequest& request,
                                             const std::function<void(int64_t, double)>& point) override {
    grpc::ClientContext context;
    Prepare(&context, kSeriesLimitSeconds);
    const auto reader = stub_->GetSeries(&context, request);
    v1::SeriesChunk chunk;
    v1::HistoryNotes notes;
    while (reader->Read(&chunk)) {
      if (chunk.step_size() != chunk.value_size()) {
        context.TryCancel();
        (void)reader->Finish();
        return absl::InternalError("the daemon sent " + std::to_string(chunk.step_size()) + " steps with " +
                                   std::to_string(chunk.value_size()) + " values in one chunk, wanted as many");
      }
      for (int i = 0; i < chunk.step_size(); ++i) point(chunk.step(i), chunk.value(i));
      if (chunk.has_notes()) notes = chunk.notes();
    }
    if (absl::Status status = ToAbsl(reader->Finish()); !status.ok()) return status;
    return notes;
  }

  absl::Status Export(const v1::ExportRequest& request,
                      const std::function<bool(const v1::ExportChunk&)>& take) override {
    grpc::ClientContext context;
    Prepare(&context, 0);
    const auto reader = stub_->Export(&context, request);
    v1::ExportChunk chunk;
    while (reader->Read(&chunk)) {
      if (take(chunk)) continue;
      context.TryCancel();
      (void)reader->Finish();  // Cancelled by ourselves: the caller has what it wanted.
      return absl::OkStatus();
    }
    return ToAbsl(reader->Finish());
  }

  absl::Status Watch(const v1::WatchRequest& request, const std::function<bool(const v1::RunView&)>& view) override {
    grpc::ClientContext context;
    Prepare(&context, 0);
    const auto reader = stub_->Watch(&context, request);
    v1::RunView update;
    while (reader->Read(&update)) {
      if (view(update)) continue;
      context.TryCancel();
      (void)reader->Finish();  // Cancelled by ourselves: the caller has what it wanted.
      return absl::OkStatus();
    }
    const absl::Status status = ToAbsl(reader->Finish());
    return status.ok() ? absl::UnavailableError("the daemon ended the stream") : status;
  }

  // health.proto is not shipped with Debian's gRPC, and its two messages are one field each: an empty request asks for
  // the whole server, and the response `08 01` says SERVING.
  absl::Status CheckHealth() override {
    grpc::ClientContext context;
    Prepare(&context, kUnaryLimitSeconds);
    grpc::GenericStub stub(channel_);
    grpc::CompletionQueue queue;
    const grpc::Slice empty("", 0);
    const grpc::ByteBuffer request(&empty, 1);
    grpc::ByteBuffer response;
    grpc::Status status;
    const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
    call->StartCall();
    call->Finish(&response, &status, this);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    queue.Shutdown();
    if (!status.ok()) return ToAbsl(status);
    std::vector<grpc::Slice> slices;
    std::string bytes;
    if (response.Dump(&slices).ok())
      for (const grpc::Slice& each : slices) bytes.append(reinterpret_cast<const char*>(each.begin()), each.size());
    if (bytes == std::string("\x08\x01", 2)) return absl::OkStatus();
    return absl::FailedPreconditionError("the health service answers NOT_SERVING, wanted SERVING");
  }

  bool WaitForConnection(std::chrono::milliseconds limit) override {
    const gpr_timespec span = gpr_time_from_millis(limit.count(), GPR_TIMESPAN);
    if (channel_->GetState(true) == GRPC_CHANNEL_READY) channel_->WaitForStateChange(GRPC_CHANNEL_READY, span);
    return channel_->WaitForConnected(span);
  }

 private:
  using Stub = v1::ControlService::Stub;

  // No deadline where `limit_seconds` is 0.
  void Prepare(grpc::ClientContext* context, int64_t limit_seconds) const {
    if (limit_seconds > 0) context->set_deadline(gpr_time_from_seconds(limit_seconds, GPR_TIMESPAN));
    if (!token_.empty()) context->AddMetadata("authorization", "Bearer " + token_);
  }

  template <class Request, class Response>
  absl::StatusOr<Response> Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                const Request& request) {
    grpc::ClientContext context;
    Prepare(&context, kUnaryLimitSeconds);
    Response response;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
    if (!status.ok()) return ToAbsl(status);
    return response;
  }

  const std::string token_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Stub> stub_;
};

}  // namespace

std::unique_ptr<Control> MakeGrpcControl(const std::string& address, const std::string& token) {
  return std::make_unique<GrpcControl>(address, token);
}

}  // namespace gyrostat::ctl
