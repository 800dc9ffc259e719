#include "config/notify_keys.h"

#include <set>

#include "config/key_types.h"
#include "notify/webhook.h"
#include "post/http_post.h"

namespace gyrostat::config {
namespace {

using notify::Format;
using model::Severity;

constexpr char kList[] = "notify.webhooks";

std::vector<Choice<notify::Kind>> KindChoices() {
  std::vector<Choice<notify::Kind>> choices;
  for (const notify::Kind kind : notify::kKinds) choices.emplace_back(notify::Token(kind), kind);
  return choices;
}

Key ListKey() {
  Key key{kList,
          "Where notices go: webhooks[0], webhooks[1] and so on, each with keys as listed below.",
          "a list of maps",
          Change::kReload,
          [](const Entry& entry, Config* config) {
            config->notify.webhooks.clear();
            return entry.kind == Entry::Kind::kMapList || entry.kind == Entry::Kind::kNull ||
                   (entry.kind == Entry::Kind::kList && entry.items.empty());
          },
          [](const Config&) { return std::string("[]"); },
          nullptr};
  key.add = [](Config* config) { config->notify.webhooks.emplace_back(); };
  return key;
}

void AppendWebhookKeys(std::vector<Key>* keys) {
  const auto text = [keys](const char* name, const char* description, const char* accepted,
                           std::string (*problem)(const std::string&), auto get) {
    keys->push_back(TextKey(name, description, accepted, problem, get, Change::kReload));
  };
  text("notify.webhooks[].name", "Says in the log and in messages which one it is. A webhook keeps its queue as long "
       "as it keeps its name.", "1 to 64 letters, digits, '_', '.' and '-', no two alike", notify::NameProblem,
       [](auto& c) -> auto& { return c.notify.webhooks.back().name; });
  text("notify.webhooks[].url", "Where it listens. For Grafana: https://HOST/api/annotations.",
       "a URL of http or https without credentials", post::UrlProblem,
       [](auto& c) -> auto& { return c.notify.webhooks.back().target.url; });
  text("notify.webhooks[].url_file", "File with the URL, instead of url, where the URL itself is a secret (Slack's "
       "are); it is read for each request.", "a file", PathProblem,
       [](auto& c) -> auto& { return c.notify.webhooks.back().target.url_file; });
  keys->push_back(ChoiceKey<Format>(
      "notify.webhooks[].format",
      "json: all there is (daemon/notify/README.md). slack: blocks for an incoming webhook. grafana: annotations.",
      {{"json", Format::kJson}, {"slack", Format::kSlack}, {"grafana", Format::kGrafana}},
      [](auto& c) -> auto& { return c.notify.webhooks.back().format; }, Change::kReload));
  keys->push_back(ChoiceKey<Severity>(
      "notify.webhooks[].min_severity", "Findings and episodes below it are not told.",
      {{"info", Severity::kInfo}, {"warning", Severity::kWarning}, {"critical", Severity::kCritical}},
      [](auto& c) -> auto& { return c.notify.webhooks.back().min_severity; }, Change::kReload));
  keys->push_back(ChoicesKey<notify::Kind>(
      "notify.webhooks[].events", "What is told. Empty: everything.", KindChoices(),
      [](auto& c) -> auto& { return c.notify.webhooks.back().events; }, Change::kReload));
  text("notify.webhooks[].token_file", "File with a bearer token; it is read for each request. Empty: none.", "a file",
       PathProblem, [](auto& c) -> auto& { return c.notify.webhooks.back().target.token_file; });
  text("notify.webhooks[].hmac_key_file",
       "File with a key that signs each request with HMAC-SHA256 in X-Gyrostat-Signature; read for each request. "
       "Empty: none.", "a file", PathProblem, [](auto& c) -> auto& { return c.notify.webhooks.back().hmac_key_file; });
  text("notify.webhooks[].ca_file", "Certificates that sign the webhook's, PEM. Empty: the system's.", "a file",
       PathProblem, [](auto& c) -> auto& { return c.notify.webhooks.back().target.ca_file; });
  keys->push_back(DurationKey(
      "notify.webhooks[].timeout_ms", "Time for one request.", 100, 60000, 1,
      [](auto& c) -> auto& { return c.notify.webhooks.back().target.timeout; }, Change::kReload));
  keys->push_back(IntegerKey(
      "notify.webhooks[].queue_max", "Notices that wait for it; beyond that the oldest are dropped and counted.", 8,
      10000, [](auto& c) -> auto& { return c.notify.webhooks.back().queue_max; }, Change::kReload));
}

}  // namespace

void AppendNotifyKeys(std::vector<Key>* keys) {
  keys->push_back(TextKey(
      "notify.page_url",
      "The built-in page's address as people reach it, such as https://gyrostat.example.org: messages then have a link "
      "to their run. Empty: none has.",
      "a URL of http or https without credentials", post::UrlProblem,
      [](auto& c) -> auto& { return c.notify.page_url; }, Change::kReload));
  keys->push_back(DurationKey(
      "notify.gather_ms", "How long a first notice waits for others that go into the same message.", 0, 600000, 1,
      [](auto& c) -> auto& { return c.notify.gather; }, Change::kReload));
  keys->push_back(DurationKey(
      "notify.backoff_max_ms", "Longest wait before a webhook that takes nothing is asked again.", 1000, 3600000, 1,
      [](auto& c) -> auto& { return c.notify.backoff_max; }, Change::kReload));
  keys->push_back(ListKey());
  AppendWebhookKeys(keys);
}

std::vector<Fault> NotifyFaults(const Config& config) {
  std::vector<Fault> faults;
  const auto& webhooks = config.notify.webhooks;
  if (webhooks.size() > notify::kWebhooksMax)
    faults.push_back({kList, "saw " + std::to_string(webhooks.size()) + " webhooks, accepted are at most " +
                                 std::to_string(notify::kWebhooksMax)});
  std::set<std::string> names;
  for (size_t i = 0; i < webhooks.size(); ++i) {
    const std::string path = std::string(kList) + "[" + std::to_string(i) + "]";
    if (const std::string problem = notify::WebhookProblem(webhooks[i]); !problem.empty())
      faults.push_back({path, problem});
    else if (!names.insert(webhooks[i].name).second)
      faults.push_back({path, "name: saw '" + webhooks[i].name + "' a second time, accepted are names that differ"});
  }
  return faults;
}

}  // namespace gyrostat::config
