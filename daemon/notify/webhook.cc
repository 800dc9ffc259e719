#include "notify/webhook.h"

#include <algorithm>

namespace gyrostat::notify {

const char* Token(Format format) {
  switch (format) {
    case Format::kJson: return "json";
    case Format::kSlack: return "slack";
    case Format::kGrafana: return "grafana";
  }
  return "unknown";
}

bool Webhook::Wants(const Notice& notice, Kind* kind) const {
  *kind = notice.kind;
  if (notice.kind == Kind::kTest) return true;
  if ((notice.finding || notice.episode) && notice.severity < min_severity) return false;
  if (notice.severity_before < min_severity) {
    if (notice.kind == Kind::kFindingWorsened) *kind = Kind::kFindingRaised;
    if (notice.kind == Kind::kEpisodeWorsened) *kind = Kind::kEpisodeOpened;
  }
  return events.empty() || std::find(events.begin(), events.end(), *kind) != events.end();
}

std::string NameProblem(const std::string& name) {
  const auto is_fit = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  };
  if (name.empty() || name.size() > 64 || !std::all_of(name.begin(), name.end(), is_fit))
    return "saw '" + name.substr(0, 64) + "', accepted are 1 to 64 letters, digits, '_', '.' and '-'";
  return "";
}

std::string WebhookProblem(const Webhook& webhook) {
  if (webhook.name.empty()) return "name: is missing";
  if (webhook.target.url.empty() == webhook.target.url_file.empty())
    return std::string("url: ") + (webhook.target.url.empty() ? "neither it nor url_file" : "both it and url_file") +
           " is given, accepted is one of them";
  return "";
}

}  // namespace gyrostat::notify
