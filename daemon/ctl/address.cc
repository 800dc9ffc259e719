#include "ctl/address.h"

#include "base/endpoint.h"

namespace gyrostat::ctl {

bool IsOnThisMachine(const std::string& address) {
  if (address.rfind("unix:", 0) == 0) return true;
  std::string host = address.substr(0, address.rfind(':'));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return base::IsLoopbackHost(host);
}

}  // namespace gyrostat::ctl
