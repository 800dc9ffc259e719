#include "ctl/address.h"

#include <charconv>

#include "base/endpoint.h"

namespace gyrostat::ctl {

std::string CheckAddress(const std::string& address) {
  if (address.rfind("unix:", 0) == 0 && address.size() > 5) return "";
  const size_t colon = address.rfind(':');
  int port = 0;
  bool good = colon != std::string::npos && colon > 0;
  if (good) {
    const char* const end = address.data() + address.size();
    const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, port);
    const bool bare_ipv6 = address.find(':') != colon && address[colon - 1] != ']';
    good = error == std::errc() && stop == end && port >= 1 && port <= 65535 && !bare_ipv6;
  }
  return good ? "" : "address \"" + address + "\"; wanted HOST:PORT, [IPV6]:PORT or unix:PATH, as 127.0.0.1:7431";
}

bool IsOnThisMachine(const std::string& address) {
  if (address.rfind("unix:", 0) == 0) return true;
  std::string host = address.substr(0, address.rfind(':'));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return base::IsLoopbackHost(host);
}

}  // namespace gyrostat::ctl
