#include "client/src/grpc_transport.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "client/src/grpc_call.h"
#include "client/src/grpc_convert.h"

namespace gyrostat::client {
namespace {

// As large as a ledger of the largest model; an order of the daemon is never larger.
constexpr int kMessageBytesMax = 4 << 20;
// A connection that takes longer than this to come up is a black hole.
constexpr int kConnectMsMax = 5000;

grpc::ChannelArguments Arguments(const GrpcTransportOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(options.keepalive_time.count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(options.keepalive_timeout.count()));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // Else pings stop on an idle stream.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);     // Apart from any other gRPC user of the process.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);             // $http_proxy is for the web, not for the cluster.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMsMax);
  arguments.SetInt(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, kMessageBytesMax);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // A stream is not repeated behind our back.
  return arguments;
}

const char* Name(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
      return "cancelled";
    case grpc::StatusCode::INVALID_ARGUMENT:
      return "invalid argument";
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "deadline exceeded";
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return "resource exhausted";
    case grpc::StatusCode::FAILED_PRECONDITION:
      return "failed precondition";
    case grpc::StatusCode::ABORTED:
      return "aborted";
    case grpc::StatusCode::UNIMPLEMENTED:
      return "unimplemented";
    case grpc::StatusCode::UNAVAILABLE:
      return "unavailable";
    case grpc::StatusCode::UNAUTHENTICATED:
      return "unauthenticated";
    case grpc::StatusCode::PERMISSION_DENIED:
      return "permission denied";
    default:
      return "failed";
  }
}

void CopyText(const std::string& text, char* out, size_t size) {
  if (size == 0) return;
  const size_t length = std::min(text.size(), size - 1);
  std::memcpy(out, text.data(), length);
  out[length] = '\0';
}

}  // namespace

bool CheckAddress(const std::string& address, std::string* error) {
  if (address.starts_with("unix:")) return true;
  const size_t colon = address.rfind(':');
  const char* const end = address.data() + address.size();
  uint32_t port = 0;
  if (colon != std::string::npos && colon > 0) {
    const auto [stop, problem] = std::from_chars(address.data() + colon + 1, end, port);
    if (problem == std::errc() && stop == end && port >= 1 && port <= 65535) return true;
  }
  *error = "the address is \"" + address + "\", wanted host:port with a port from 1 to 65535";
  return false;
}

GrpcLink::GrpcLink(std::string address, GrpcTransportOptions options, const base::Clock* clock)
    : address_(std::move(address)), options_(options), clock_(clock), random_(std::random_device{}()) {}

LinkState GrpcLink::State(uint64_t* stream_number, char* detail, size_t detail_size) {
  if (call_ != nullptr) {
    grpc::Status status;
    if (!call_->Ended(&status)) {
      *stream_number = stream_;
      return call_->Connected() ? LinkState::kUp : LinkState::kConnecting;
    }
    call_.reset();
    GrpcCall::Reap();
    detail_ = status.ok() ? "the daemon closed the stream"
                          : std::string(Name(status.error_code())) + ": " + status.error_message();
    dial_at_ = clock_->Now() + NextDelay();
  }
  CopyText(detail_, detail, detail_size);
  if (clock_->Now() < dial_at_) return LinkState::kDown;
  Dial();
  *stream_number = stream_;
  return LinkState::kConnecting;
}

void GrpcLink::Dial() {
  call_ = GrpcCall::Start(address_, Arguments(options_));
  ++stream_;
}

base::Milliseconds GrpcLink::NextDelay() {
  delay_ = delay_.count() == 0 ? options_.backoff_first : std::min(2 * delay_, options_.backoff_longest);
  // A fifth either way, so that jobs which lost one daemon together do not come back together.
  std::uniform_real_distribution<double> jitter(0.8, 1.2);
  return base::Milliseconds(static_cast<int64_t>(static_cast<double>(delay_.count()) * jitter(random_)));
}

bool GrpcLink::Send(WireKind kind, const char* bytes, size_t size) {
  if (call_ == nullptr || !call_->CanWrite()) return false;
  if (!ToWire(kind, {bytes, size}, &scratch_, call_->request())) return true;  // Taken, and lost: it can never be sent.
  return call_->Write();
}

bool GrpcLink::Receive(DownMessage* message) {
  v1::DaemonMessage wire;
  std::string error;
  while (call_ != nullptr && call_->Read(&wire)) {
    delay_ = base::Milliseconds(0);  // The daemon is there.
    if (FromWire(wire, message, &order_, &error)) return true;
    if (error.empty()) continue;
    call_->Cancel();
    detail_ = error;
    return false;
  }
  return false;
}

bool GrpcLink::Flushed() { return call_ == nullptr || call_->CanWrite(); }

void GrpcLink::Close(base::Milliseconds budget) {
  if (call_ != nullptr) call_->Close(budget, *clock_);
  call_.reset();
  GrpcCall::Reap();
}

namespace {

std::atomic<int64_t> g_keepalive_ms{0};  // 0: the default.

GrpcLink* Link(void* self) { return static_cast<GrpcLink*>(self); }

// Nothing may be thrown across the seam, and only memory can run out here.
template <class T, class Call>
T Guarded(T otherwise, Call call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return otherwise;
  }
}

void* Open(const char* address, char* reason, size_t reason_size) {
  return Guarded<void*>(nullptr, [&]() -> void* {
    std::string error;
    if (!CheckAddress(address, &error)) {
      CopyText(error, reason, reason_size);
      return nullptr;
    }
    GrpcTransportOptions options;
    if (const int64_t ms = g_keepalive_ms.load(); ms > 0) {
      options.keepalive_time = base::Milliseconds(ms);
      options.keepalive_timeout = base::Milliseconds(std::max<int64_t>(ms / 2, 1));
    }
    return new GrpcLink(address, options, &base::SystemClock());
  });
}

LinkState State(void* self, uint64_t* stream_number, char* detail, size_t detail_size) {
  return Guarded(LinkState::kDown, [&] { return Link(self)->State(stream_number, detail, detail_size); });
}

bool Send(void* self, WireKind kind, const char* bytes, size_t size) {
  return Guarded(false, [&] { return Link(self)->Send(kind, bytes, size); });
}

bool Receive(void* self, DownMessage* message) {
  return Guarded(false, [&] { return Link(self)->Receive(message); });
}

bool Flushed(void* self) { return Link(self)->Flushed(); }

void Close(void* self, uint32_t budget_ms) {
  Link(self)->Close(base::Milliseconds(budget_ms));
  delete Link(self);
}

constexpr TransportApi kApi = {kTransportAbi, &Open, &State, &Send, &Receive, &Flushed, &Close};

// The environment is read on the thread of gyro_open: another thread of ours would race with the job's setenv. For
// the same reason gRPC starts here. It is never shut down: its shutdown at exit is what hangs processes.
void Initialize() {
  const char* text = std::getenv("GYROSTAT_KEEPALIVE_MS");
  int64_t ms = 0;
  if (text != nullptr && std::from_chars(text, text + std::strlen(text), ms).ec == std::errc() && ms >= 10 &&
      ms <= 3'600'000)
    g_keepalive_ms.store(ms);
  static const bool once = [] {
    gpr_set_log_function([](gpr_log_func_args*) {});  // We print nothing; what matters is in the stream's status.
    grpc_init();
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace
}  // namespace gyrostat::client

extern "C" __attribute__((visibility("default"))) const gyrostat::client::TransportApi* gyrostat_transport_v1() {
  gyrostat::client::Initialize();
  return &gyrostat::client::kApi;
}
