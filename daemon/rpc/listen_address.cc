#include "rpc/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/status/status.h"

namespace gyrostat::rpc {
namespace {

constexpr size_t kUnixPathBytesMax = sizeof(sockaddr_un{}.sun_path) - 1;

// Fills `*storage` and returns its size.
socklen_t ToSockaddr(const ListenAddress& address, sockaddr_storage* storage) {
  if (!address.unix_path.empty()) {
    auto* path = reinterpret_cast<sockaddr_un*>(storage);
    path->sun_family = AF_UNIX;
    std::memcpy(path->sun_path, address.unix_path.c_str(), address.unix_path.size() + 1);
    return sizeof(*path);
  }
  const uint16_t port = htons(address.endpoint.port);
  auto* four = reinterpret_cast<sockaddr_in*>(storage);
  if (inet_pton(AF_INET, address.endpoint.host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = port;
    return sizeof(*four);
  }
  auto* six = reinterpret_cast<sockaddr_in6*>(storage);
  inet_pton(AF_INET6, address.endpoint.host.c_str(), &six->sin6_addr);
  six->sin6_family = AF_INET6;
  six->sin6_port = port;
  return sizeof(*six);
}

}  // namespace

std::string ListenAddress::Text() const {
  return unix_path.empty() ? endpoint.ToString() : "unix:" + unix_path;
}

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text) {
  if (text.rfind("unix:", 0) != 0) {
    std::string error;
    const std::optional<base::Endpoint> endpoint = base::ParseLoopbackEndpoint(text, &error);
    if (!endpoint) return absl::InvalidArgumentError(error);
    return ListenAddress{*endpoint, ""};
  }
  const std::string path = text.substr(5);
  if (path.empty() || path.size() > kUnixPathBytesMax || path.find('\0') != std::string::npos)
    return absl::InvalidArgumentError("saw a path of " + std::to_string(path.size()) + " bytes, accepted is " +
                                      "unix:PATH with a path of 1 to " + std::to_string(kUnixPathBytesMax) + " bytes");
  return ListenAddress{{}, path};
}

std::string WhyNotBindable(const ListenAddress& address) {
  sockaddr_storage storage{};
  const socklen_t size = ToSockaddr(address, &storage);
  const int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::strerror(errno);
  const int on = 1;  // As gRPC does: a port whose last connections still linger is free.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool bound = bind(fd, reinterpret_cast<const sockaddr*>(&storage), size) == 0;
  const int error = errno;
  close(fd);
  if (bound && !address.unix_path.empty()) unlink(address.unix_path.c_str());
  return bound ? "" : std::strerror(error);
}

}  // namespace gyrostat::rpc
