// HOST:PORT as people write it in flags and files, and the rule that only loopback may be listened on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gyrostat::base {

struct Endpoint {
  std::string host;   // An address, never a name: 127.0.0.1 or ::1, without brackets.
  uint16_t port = 0;  // 0: the system picks one.
  // "127.0.0.1:7431", "[::1]:7431".
  std::string ToString() const;
  bool operator==(const Endpoint&) const = default;
};

// Reads an address to listen on: "127.0.0.1:7431", "[::1]:0", "localhost:7431" (which is 127.0.0.1). Anything that is
// not loopback is refused as long as there is neither TLS nor authentication. On failure `*error` says what was seen,
// what is accepted and why.
std::optional<Endpoint> ParseLoopbackEndpoint(std::string_view text, std::string* error);

// Whether `host` (no port, no brackets) is a name or an address of this machine's loopback.
bool IsLoopbackHost(std::string_view host);

}  // namespace gyrostat::base
