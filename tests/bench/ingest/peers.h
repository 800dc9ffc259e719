// What the daemon's ingest is compared with: receivers that only take the values in. Each runs in a process of its own,
// prints a line when it is ready and serves until it is killed.
#pragma once

#include <string>

namespace gyrostat::bench {

constexpr int kAcknowledgeEvery = 64;  // Reports; the receivers answer with a sequence number this often.

// A blocking unix socket: a header of size and sequence, the values, one memcpy into a slot. The least any receiver
// costs.
[[noreturn]] void ServeRaw(const std::string& socket_path);

// The report service on gRPC's callback API, values copied into a slot, nothing judged or kept. `keep_heap` sets the
// allocator as gyrostatd does, so that receive buffers are not given back to the kernel and faulted in again.
[[noreturn]] void ServeGrpc(const std::string& socket_path, bool keep_heap);

// The header of a raw report; `bytes` of values follow.
struct RawHeader {
  unsigned long long sequence = 0, bytes = 0;
};

}  // namespace gyrostat::bench
