// A test message to each webhook, as gyrostatd --test-notify sends it.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "notify/webhook.h"
#include "post/http_post.h"

namespace gyrostat::notify {

struct Trial {
  std::string webhook;
  post::PostResult result;
};

// One after the other, each tried once. Blocks for their time-outs at most.
std::vector<Trial> TryWebhooks(const NotifyOptions& options, const std::string& user_agent, const base::Clock& clock);

}  // namespace gyrostat::notify
