// The control service over gRPC, and the only file of this room, with its .cc, that knows gRPC.
#pragma once

#include <memory>
#include <string>

#include "ctl/control.h"

namespace gyrostat::ctl {

// `address` as --address takes it (HOST:PORT, [IPV6]:PORT, unix:PATH). `token`, where not empty, goes with every call
// as `authorization: Bearer`. Does not connect yet.
std::unique_ptr<Control> MakeGrpcControl(const std::string& address, const std::string& token);

}  // namespace gyrostat::ctl
