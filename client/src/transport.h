// The seam between the client and the network. The gRPC transport behind it is a library of its own
// (libgyrostat_transport.so), loaded with dlopen(RTLD_LOCAL) at gyro_open, so that libgyrostat.so depends on neither
// gRPC, protobuf nor abseil and cannot collide with the process's own copies.
//
// Plain C structs: the two libraries may be built apart. All functions are called on the sender thread and never
// block.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

namespace gyrostat::client {

inline constexpr uint32_t kTransportAbi = 3;

// Encoded model:: values (base/archive.h) cross the seam; the transport turns them into protobuf and back.
enum class WireKind : uint8_t { kHello = 1, kReport = 2, kAck = 3, kBye = 4 };
enum class DownKind : uint8_t { kWelcome = 1, kAcknowledged = 2, kOrder = 3 };

struct DownMessage {
  DownKind kind;
  uint64_t sequence;  // kWelcome, kAcknowledged.
  const char* bytes;  // kOrder: an encoded model::Order.
  size_t size;
};

enum class LinkState : uint8_t { kDown = 0, kConnecting = 1, kUp = 2 };

// The function table that a transport exports under kTransportSymbol. `self` comes from open.
struct TransportApi {
  uint32_t abi;
  // Starts connecting to `address`. Null and a reason (cut to `reason_size`) on a bad address. Returns at once.
  void* (*open)(const char* address, char* reason, size_t reason_size);
  // The state of the one stream. After kDown, `detail` says why; the transport dials again by itself, with back-off and
  // jitter. A new kUp means a new stream: the caller sends its hello first.
  LinkState (*state)(void* self, uint64_t* stream_number, char* detail, size_t detail_size);
  // Sends one message. False: nothing was taken (not up, or one is still being written): try again later.
  bool (*send)(void* self, WireKind kind, const char* bytes, size_t size);
  // Takes the next message from the daemon; false when there is none. `message->bytes` lives until the next receive.
  bool (*receive)(void* self, DownMessage* message);
  // Whether everything taken by send has been handed to the kernel.
  bool (*flushed)(void* self);
  // Cancels and lets go. May take at most `budget_ms`; what then still hangs is leaked, never joined.
  void (*close)(void* self, uint32_t budget_ms);
};

inline constexpr char kTransportSymbol[] = "gyrostat_transport_v1";  // extern "C" const TransportApi* ()

}  // namespace gyrostat::client
