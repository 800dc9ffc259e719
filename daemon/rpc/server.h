// The daemon's gRPC port: report and control services, health, reflection, limits.
//
// Loopback or a Unix socket only, until tokens exist. No gRPC type shows here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/ports.h"
#include "rpc/probe.h"
#include "rpc/stream_table.h"

namespace gyrostat::rpc {

struct ServerOptions {
  std::string listen = "127.0.0.1:7431";  // As rpc/listen_address.h says; port 0: any free one.
  std::string version;           // Told to clients and operators.
  uint32_t streams_max = 4096;   // Report streams; each costs 41 KiB and three of its largest messages. [1, 100000].
  uint32_t watchers_max = 64;    // Watch calls. [1, 10000].
  uint32_t memory_max_mib = 1024;  // What gRPC may buffer for all connections; beyond it they wait. [64, 65536].
  base::Milliseconds hello_deadline{10000};  // A stream that has not said hello by then is closed. [100, 600000].
};

// What only main.cc knows and GetStatus tells.
struct DaemonStatus {
  int64_t started_at_unix_ms = 0;
  std::string http_address, data_dir;
  uint64_t journal_queue = 0;  // Entries that wait to be written.
  bool ready = true;
  std::string not_ready_reason;
};

// Thread-safe.
class Server {
 public:
  // All pointers outlive the server. `status` is called on gRPC threads and must not block.
  Server(ServerOptions options, engine::Engine* engine, engine::History* history, StreamTable* streams,
         const base::Clock* clock, std::function<DaemonStatus()> status);
  ~Server();  // Stop(0).

  // Opens the port and serves; the engine must have started. Returns the address clients dial, "HOST:PORT" with the
  // real port or "unix:PATH". INVALID_ARGUMENT: not an address, or not loopback. UNAVAILABLE: taken, with the system's
  // reason.
  absl::StatusOr<std::string> Start();
  // What the health service answers: SERVING or NOT_SERVING. SERVING from Start on.
  void SetServing(bool serving);
  // Takes nothing new, sends streams the acknowledgements they are owed and tells them to dial again; what is left
  // after `deadline` is cut. The engine and the journal must still be running. Idempotent.
  void Stop(base::Milliseconds deadline);

  Probe& probe();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gyrostat::rpc
