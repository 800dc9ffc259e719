// The thread that posts for one webhook: one request at a time, so that a slow one holds up only itself.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "notify/webhook.h"
#include "post/http_post.h"

namespace gyrostat::notify {

// One request, signed if the webhook wants it. Not thread-safe, but for `stop`.
class SignedPost {
 public:
  // `clock`: of the signature's time. All pointers outlive this.
  SignedPost(const Webhook& hook, const std::string& user_agent, const base::Clock* clock,
             const std::atomic<bool>* stop);
  post::PostResult Post(const std::string& body);  // Blocks for the webhook's time-out at most.

 private:
  const std::string hmac_key_file_;
  const base::Clock* const clock_;
  post::HttpPost http_;
};

class Courier {
 public:
  // `done` gets the answer of each Give, on the courier's thread; it must not block.
  Courier(const Webhook& hook, const std::string& user_agent, const base::Clock* clock,
          std::function<void(post::PostResult)> done);
  ~Courier();  // Stops, and waits for the thread; an answer may still come until then.

  // Not while another is under way. Does not block.
  void Give(std::string body);
  // A request under way ends soon, without an answer; nothing more is taken. Does not wait.
  void Stop();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace gyrostat::notify
