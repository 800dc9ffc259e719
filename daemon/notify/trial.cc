#include "notify/trial.h"

#include <atomic>

#include "notify/courier.h"
#include "notify/format.h"

namespace gyrostat::notify {

std::vector<Trial> TryWebhooks(const NotifyOptions& options, const std::string& user_agent, const base::Clock& clock) {
  std::vector<Trial> trials;
  const std::atomic<bool> stop{false};
  for (const Webhook& hook : options.webhooks) {
    Notice notice;
    notice.kind = Kind::kTest;
    notice.run = "test";
    notice.unix_ms = notice.begun_unix_ms = clock.UnixMs();
    notice.subject = "test/" + std::to_string(notice.unix_ms);
    const std::string body = Body(hook.format, {&notice, 1}, {hook.name, user_agent, options.page_url, 0});
    trials.push_back({hook.name, SignedPost(hook, user_agent, &clock, &stop).Post(body)});
  }
  return trials;
}

}  // namespace gyrostat::notify
