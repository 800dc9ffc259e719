// Where notices go, and which. What the configuration's `notify` section becomes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "model/finding.h"
#include "notify/notice.h"
#include "post/http_post.h"

namespace gyrostat::notify {

enum class Format : uint8_t { kJson, kSlack, kGrafana };
const char* Token(Format format);  // json slack grafana

struct Webhook {
  std::string name;                       // [A-Za-z0-9_.-], 1 to 64. The queue is kept under it.
  post::Target target{.timeout = base::Milliseconds(10'000)};
  Format format = Format::kJson;
  model::Severity min_severity = model::Severity::kWarning;  // Of findings and episodes; the rest by `events` alone.
  std::vector<Kind> events;               // Empty: all.
  std::string hmac_key_file;              // Signs each request. Empty: none does.
  uint32_t queue_max = 256;               // Notices that wait; beyond it the oldest go. [8, 10000].
  bool operator==(const Webhook&) const = default;

  // Whether this one is told. `*kind`: as what. What worsens from below min_severity is new to the webhook.
  bool Wants(const Notice& notice, Kind* kind) const;
};

struct NotifyOptions {
  std::vector<Webhook> webhooks;          // At most 16, names differ.
  std::string page_url;                   // Of the built-in page, as people reach it. Empty: messages have no link.
  base::Milliseconds gather{2000};        // From the first notice on, for what belongs into the same message.
  base::Milliseconds backoff_min{1000}, backoff_max{300'000};
};
inline constexpr size_t kWebhooksMax = 16;

// What is wrong with the webhook as a whole, or nothing: "name: ...". Each field by itself is right.
std::string WebhookProblem(const Webhook& webhook);
std::string NameProblem(const std::string& name);  // Empty: it is one.

}  // namespace gyrostat::notify
