// Where gRPC may listen: loopback (base/endpoint.h) or a Unix socket.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/endpoint.h"

namespace gyrostat::rpc {

struct ListenAddress {
  base::Endpoint endpoint;  // Unused where there is a path.
  std::string unix_path;    // Not empty: a Unix socket.

  // As gRPC takes it and clients dial it: "127.0.0.1:7431", "[::1]:7431", "unix:/run/gyrostat.sock".
  std::string Text() const;
};

// Takes "unix:PATH" and what base::ParseLoopbackEndpoint takes; INVALID_ARGUMENT says what is wrong.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text);

// Why `address` cannot be bound, in the system's words; empty when it can (the reason has gone, or was another).
std::string WhyNotBindable(const ListenAddress& address);

}  // namespace gyrostat::rpc
