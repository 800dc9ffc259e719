// A message for a webhook: notices of one run as the body of a POST. Pure; thread-safe. Bodies are valid UTF-8 whatever
// stands in names and reasons; the README has the fields.
#pragma once

#include <span>
#include <string>

#include "notify/webhook.h"
#include "notify/words.h"

namespace gyrostat::notify {

// Notices that a message lists in full; the rest is counted.
inline constexpr size_t kListedMax = 100;    // json.
inline constexpr size_t kSlackListedMax = 10;
inline constexpr size_t kGrafanaListedMax = 20;

// `notices`: at least one, all of one run. For Grafana also of one kind.
std::string Body(Format format, std::span<const Notice> notices, const Envelope& envelope);

std::string JsonBody(std::span<const Notice> notices, const Envelope& envelope);
// Within Slack's limits: 50 blocks, 3000 characters a section; & < > escaped, nothing of a job's words is markup.
std::string SlackBody(std::span<const Notice> notices, const Envelope& envelope);
// Of POST /api/annotations: a point; where something is over, the region from its begin.
std::string GrafanaBody(std::span<const Notice> notices, const Envelope& envelope);

}  // namespace gyrostat::notify
