// Where a daemon is, as --address and $GYROSTAT_ADDRESS say it.
#pragma once

#include <string>

namespace gyrostat::ctl {

// Whether HOST:PORT, [IPV6]:PORT or unix:PATH can only be a process of this machine.
bool IsOnThisMachine(const std::string& address);

}  // namespace gyrostat::ctl
