// The gRPC transport behind the seam: one bidirectional stream, dialled again with back-off whenever it ends.
//
// Callback API only: a synchronous write to a stopped daemon blocks for ever and cannot be cancelled (gRPC 1.51). One
// write is outstanding at a time (a second StartWrite aborts the process), so what is in flight is one message plus
// gRPC's own window. Every dial makes a new channel with its own subchannel pool: a new look at the address, a
// connection attempt at once, and back-off in one place, here.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "base/clock.h"
#include "client/src/transport.h"
#include "model/report.h"

namespace gyrostat::client {

struct GrpcTransportOptions {
  base::Milliseconds keepalive_time{20'000};     // The daemon allows pings every 10 s.
  base::Milliseconds keepalive_timeout{10'000};  // A stopped daemon is noticed after both.
  base::Milliseconds backoff_first{500}, backoff_longest{30'000};
};

class GrpcCall;

// "host:port" with a port in range, or a unix: address. Else false and a sentence that says what was seen.
bool CheckAddress(const std::string& address, std::string* error);

// Sender thread only; gRPC's threads meet it inside GrpcCall.
class GrpcLink {
 public:
  GrpcLink(std::string address, GrpcTransportOptions options, const base::Clock* clock);
  GrpcLink(const GrpcLink&) = delete;
  GrpcLink& operator=(const GrpcLink&) = delete;

  // As in TransportApi.
  LinkState State(uint64_t* stream_number, char* detail, size_t detail_size);
  bool Send(WireKind kind, const char* bytes, size_t size);
  bool Receive(DownMessage* message);
  bool Flushed();
  void Close(base::Milliseconds budget);

 private:
  void Dial();
  base::Milliseconds NextDelay();

  const std::string address_;
  const GrpcTransportOptions options_;
  const base::Clock* clock_;
  std::shared_ptr<GrpcCall> call_;  // Null between calls.
  uint64_t stream_ = 0;
  std::string detail_;  // Why the last call ended.
  base::Milliseconds delay_{0};
  base::MonotonicTime dial_at_{};  // The beginning of time: at once.
  std::minstd_rand random_;        // For jitter; nothing depends on its quality.
  model::Report scratch_;
  std::string order_;
};

}  // namespace gyrostat::client
