// One POST at a time to an endpoint of Prometheus's remote write, over a connection that is kept.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/clock.h"

namespace gyrostat::telemetry {

struct RemoteEndpoint {
  std::string url;            // http:// or https://, without credentials in it.
  std::string token_file;     // Sent as a bearer token. Empty: none.
  std::string username;       // Basic authentication, with password_file. Empty: none.
  std::string password_file;
  std::string ca_file;        // What signs the server's certificate. Empty: the system's.
  base::Milliseconds timeout{30'000};  // Of one request, all of it.
  std::string user_agent;
};

struct PostResult {
  int status = 0;                     // Of HTTP; 0: there was no answer.
  std::string error;                  // What happened where it is no 2xx: the server's words, cut short, or the reason.
  base::Milliseconds retry_after{0};  // As the server asks; 0: it does not.
};

// Not thread-safe, but for `stop`.
class RemotePost {
 public:
  // `stop`, once true, ends a request under way. It outlives this.
  RemotePost(RemoteEndpoint endpoint, const std::atomic<bool>* stop);
  ~RemotePost();

  // Sends a body that is packed already. Files of credentials are read each time: they may be replaced. Redirects are
  // not followed, so that credentials go nowhere else. Blocks for `timeout` at most.
  PostResult Post(const std::string& body);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// Why `url` cannot be an endpoint; empty: it can. An empty url can: nothing is sent then.
std::string UrlProblem(const std::string& url);

}  // namespace gyrostat::telemetry
