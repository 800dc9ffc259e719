#include "notify/courier.h"

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "notify/signature.h"

namespace gyrostat::notify {
namespace {

post::Target WithAgent(post::Target target, const std::string& user_agent) {
  target.user_agent = user_agent;
  return target;
}

}  // namespace

SignedPost::SignedPost(const Webhook& hook, const std::string& user_agent, const base::Clock* clock,
                       const std::atomic<bool>* stop)
    : hmac_key_file_(hook.hmac_key_file), clock_(clock), http_(WithAgent(hook.target, user_agent), stop) {}

post::PostResult SignedPost::Post(const std::string& body) {
  std::vector<std::string> headers = {"Content-Type: application/json"};
  if (!hmac_key_file_.empty()) {
    std::string key;
    // Read each time, as the others are: it may be replaced.
    if (!post::ReadSecret(hmac_key_file_, &key)) return {0, "no key can be read from " + hmac_key_file_, {}};
    for (std::string& each : SignatureHeaders(key, clock_->UnixMs() / 1000, body)) headers.push_back(std::move(each));
  }
  return http_.Post(body, headers);
}

struct Courier::Impl {
  Impl(const Webhook& hook, const std::string& user_agent, const base::Clock* clock,
       std::function<void(post::PostResult)> d)
      : done(std::move(d)), http(hook, user_agent, clock, &stop), thread([this] { Loop(); }) {}

  void Loop() {
    while (true) {
      std::string body;
      {
        base::MutexLock lock(mutex);
        while (!stop && !next) changed.Wait(mutex);
        if (stop) return;
        body = *std::exchange(next, std::nullopt);
      }
      post::PostResult result = http.Post(body);
      if (stop && !result.taken()) return;  // Ended by Stop: no word of the server.
      done(std::move(result));
    }
  }

  const std::function<void(post::PostResult)> done;
  std::atomic<bool> stop{false};
  base::Mutex mutex;
  base::CondVar changed;
  std::optional<std::string> next GYROSTAT_GUARDED_BY(mutex);
  SignedPost http;  // Of the thread.
  std::thread thread;
};

Courier::Courier(const Webhook& hook, const std::string& user_agent, const base::Clock* clock,
                 std::function<void(post::PostResult)> done)
    : impl_(std::make_unique<Impl>(hook, user_agent, clock, std::move(done))) {}

Courier::~Courier() {
  Stop();
  impl_->thread.join();
}

void Courier::Give(std::string body) {
  {
    base::MutexLock lock(impl_->mutex);
    impl_->next = std::move(body);
  }
  impl_->changed.NotifyAll();
}

void Courier::Stop() {
  {
    base::MutexLock lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->changed.NotifyAll();
}

}  // namespace gyrostat::notify
