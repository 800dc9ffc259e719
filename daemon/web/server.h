// The daemon's HTTP side: read-only targets for Prometheus and probes, the page and its API for people.
//
// Everything is bounded: a request must be complete within a deadline and a size (slow-loris), an answer must be taken
// within a deadline, one connection carries one request (an idle scraper never holds a thread), and connections beyond
// the queue are closed at once and counted. A body is read only where somebody asked for it, up to kBodyBytesMax.
// A Host header that is not a loopback name is refused, so that a web page in somebody's browser cannot read the daemon
// by rebinding its own name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/endpoint.h"
#include "web/http.h"
#include "web/probe.h"

namespace gyrostat::web {

struct ServerOptions {
  uint32_t threads = 4;                      // Requests answered at the same time. [1, 64].
  uint32_t connections_waiting_max = 64;     // More are closed unread. [1, 4096].
  base::Milliseconds request_timeout{5000};  // For the whole request, and again for the whole answer. [100, 60000].
};

// Everything below /api/, with all methods, and "/". An empty function: there is no such thing.
struct Site {
  // GET of "/".
  std::function<Reply(const Request&)> front;
  // Any request below /api/ whose Host is ours. Asked before a body is read: the answer where it is refused, nothing
  // where it goes on to `answer`.
  std::function<std::optional<Reply>(const Request&)> refuse;
  std::function<Reply(const Request&)> answer;
};

// Thread-safe.
class Server {
 public:
  // Binds and serves at once; `routes` maps exact paths ("/metrics") to what answers them, `site` has the rest. `probe`
  // and `clock` outlive the server. UNAVAILABLE: the address cannot be had; the message names it and the system's
  // reason.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const base::Endpoint& listen, const ServerOptions& options,
                                                       std::map<std::string, Route> routes, Probe* probe,
                                                       const base::Clock* clock, Site site = {});
  ~Server();  // Stops.

  // Where it listens, with the real port.
  const base::Endpoint& endpoint() const;

  // Closes the port, gives answers under way until `request_timeout` and returns when all threads are gone. Idempotent.
  void Stop();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gyrostat::web
