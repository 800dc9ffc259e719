// Where a daemon is, as --address and $GYROSTAT_ADDRESS say it.
#pragma once

#include <string>

namespace gyrostat::ctl {

// Empty for HOST:PORT, [IPV6]:PORT and unix:PATH; for anything else what was seen and what is wanted. gRPC itself would
// quietly dial port 443.
std::string CheckAddress(const std::string& address);

// Whether HOST:PORT, [IPV6]:PORT or unix:PATH can only be a process of this machine.
bool IsOnThisMachine(const std::string& address);

}  // namespace gyrostat::ctl
