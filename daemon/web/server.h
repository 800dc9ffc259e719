// The daemon's HTTP side: a few read-only targets for Prometheus, probes and people.
//
// Everything is bounded: a request must be complete within a deadline and a size (slow-loris), an answer must be taken
// within a deadline, one connection carries one request (an idle scraper never holds a thread), and connections beyond
// the queue are closed at once and counted. A Host header that is not a loopback name is refused, so that a web page in
// somebody's browser cannot read the daemon by rebinding its own name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/endpoint.h"
#include "web/probe.h"

namespace gyrostat::web {

struct ServerOptions {
  uint32_t threads = 4;                      // Requests answered at the same time. [1, 64].
  uint32_t connections_waiting_max = 64;     // More are closed unread. [1, 4096].
  base::Milliseconds request_timeout{5000};  // For the whole request, and again for the whole answer. [100, 60000].
};

struct Reply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// What follows the question mark, decoded; a name may come more than once.
using Query = std::multimap<std::string, std::string>;

// Answers GET and HEAD of one target. Called on any of the server's threads, several at a time.
using Route = std::function<Reply(const Query&)>;

// Thread-safe.
class Server {
 public:
  // Binds and serves at once; `routes` maps exact paths ("/metrics") to what answers them. `probe` and `clock` outlive
  // the server. UNAVAILABLE: the address cannot be had; the message names it and the system's reason.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const base::Endpoint& listen, const ServerOptions& options,
                                                       std::map<std::string, Route> routes, Probe* probe,
                                                       const base::Clock* clock);
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
