// Loads the transport library.
#pragma once

#include <string>

#include "client/src/transport.h"

namespace gyrostat::client {

// The function table of the library at `path`; empty: libgyrostat_transport.so beside this library. Null and a
// sentence in `*error` when it cannot be loaded or is of another version. Never unloads: threads of it may always be
// running.
//
// RTLD_LOCAL keeps its gRPC and protobuf out of the process; RTLD_DEEPBIND keeps the process's copies out of it. The
// latter would also hide a replaced malloc (jemalloc, AddressSanitizer) from it and split the heap, so it is used
// only where malloc is the C library's own.
const TransportApi* LoadTransport(const std::string& path, std::string* error);

}  // namespace gyrostat::client
