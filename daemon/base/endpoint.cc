#include "base/endpoint.h"

#include <arpa/inet.h>

#include <charconv>

namespace gyrostat::base {
namespace {

struct HostPort {
  std::string_view host, port;
};

// Splits at the last colon; an IPv6 address needs its brackets. Nothing where there is no port.
std::optional<HostPort> Split(std::string_view text) {
  if (!text.empty() && text.front() == '[') {
    const size_t close = text.find("]:");
    if (close == std::string_view::npos) return std::nullopt;
    return HostPort{text.substr(1, close - 1), text.substr(close + 2)};
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || text.find(':') != colon) return std::nullopt;
  return HostPort{text.substr(0, colon), text.substr(colon + 1)};
}

std::optional<uint16_t> Port(std::string_view text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > 65535) return std::nullopt;
  return static_cast<uint16_t>(value);
}

}  // namespace

std::string Endpoint::ToString() const {
  const bool six = host.find(':') != std::string::npos;
  return (six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool IsLoopbackHost(std::string_view host) {
  if (host == "localhost") return true;
  const std::string text(host);
  in_addr four{};
  if (inet_pton(AF_INET, text.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  in6_addr six{};
  return inet_pton(AF_INET6, text.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

std::optional<Endpoint> ParseLoopbackEndpoint(std::string_view text, std::string* error) {
  const std::string seen = "'" + std::string(text) + "'";
  const std::optional<HostPort> parts = Split(text);
  const std::optional<uint16_t> port = parts ? Port(parts->port) : std::nullopt;
  if (!port || parts->host.empty()) {
    *error = "saw " + seen + ", accepted is HOST:PORT, such as 127.0.0.1:7431 or [::1]:7431, with a port from 0 (the "
             "system picks one) to 65535";
    return std::nullopt;
  }
  if (!IsLoopbackHost(parts->host)) {
    *error = "saw " + seen + ", accepted is a loopback address (127.0.0.1, [::1], localhost): this version has neither "
             "TLS nor authentication, and whoever reaches the port can change a training job. From elsewhere, use an "
             "SSH tunnel.";
    return std::nullopt;
  }
  return Endpoint{parts->host == "localhost" ? "127.0.0.1" : std::string(parts->host), *port};
}

}  // namespace gyrostat::base
