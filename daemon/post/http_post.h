// One POST at a time to a server of others, over a connection that is kept.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"

namespace gyrostat::post {

struct Target {
  std::string url = {};         // http:// or https://, without credentials in it.
  std::string url_file = {};    // Where the URL itself is a secret; used if `url` is empty.
  std::string token_file = {};  // Sent as a bearer token. Empty: none.
  std::string username = {};    // Basic authentication, with password_file. Empty: none.
  std::string password_file = {};
  std::string ca_file = {};     // What signs the server's certificate. Empty: the system's.
  base::Milliseconds timeout{30'000};  // Of one request, all of it.
  std::string user_agent = {};
  bool operator==(const Target&) const = default;
};

struct PostResult {
  int status = 0;                     // Of HTTP; 0: there was no answer.
  std::string error;                  // What happened where it is no 2xx: the server's words, cut short, or the reason.
  base::Milliseconds retry_after{0};  // As the server asks, at most ten minutes; 0: it does not.

  bool taken() const { return status >= 200 && status <= 299; }
};

// Not thread-safe, but for `stop`.
class HttpPost {
 public:
  // `stop`, once true, ends a request under way. It outlives this.
  HttpPost(Target target, const std::atomic<bool>* stop);
  ~HttpPost();

  // Sends the body with these headers, each "Name: value". Files are read each time: they may be replaced. Redirects
  // are not followed, so that credentials go nowhere else. Blocks for `timeout` at most.
  PostResult Post(const std::string& body, const std::vector<std::string>& headers);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// The first line of a file that holds a secret. False: it cannot be read, is empty, or is no secret (over 16 KiB).
bool ReadSecret(const std::string& path, std::string* secret);

// Why `url` cannot be a target; empty: it can. An empty url can: nothing is sent then.
std::string UrlProblem(const std::string& url);

}  // namespace gyrostat::post
