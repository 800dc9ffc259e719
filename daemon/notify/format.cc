#include "notify/format.h"

#include <algorithm>
#include <map>
#include <set>

#include "json/values.h"

namespace gyrostat::notify {
namespace {

using json::Dump, json::Value;

constexpr size_t kSlackTextBytesMax = 2900;  // Of 3000 characters.
constexpr size_t kSlackLineBytesMax = 500;   // Before escaping, which makes five of one at worst.

Value EventValue(const Notice& notice) {
  Value out;
  out["id"] = notice.Id();
  out["event"] = Token(notice.kind);
  out["subject"] = notice.subject;
  out["unix_ms"] = notice.unix_ms;
  out["begun_unix_ms"] = notice.begun_unix_ms;
  out["attempt"] = notice.attempt.ToHex();
  out["severity"] = model::Token(notice.severity);
  out["text"] = Sentence(notice);
  if (notice.finding) out["finding"] = json::FindingValue(*notice.finding);
  if (notice.episode) out["episode"] = json::EpisodeValue(*notice.episode);
  if (notice.intervention) out["intervention"] = json::InterventionValue(*notice.intervention);
  if (notice.kind == Kind::kRunEnded) out["reason"] = notice.reason;
  return out;
}

const char* Dot(const Notice& notice) {
  if (notice.IsOver()) return ":white_check_mark:";
  if (notice.severity == model::Severity::kCritical) return ":red_circle:";
  return notice.severity == model::Severity::kWarning ? ":large_orange_circle:" : ":large_blue_circle:";
}

// Verbatim: Slack makes no links, mentions or channels of what a job wrote.
Value Section(const std::string& text) {
  return {{"type", "section"}, {"text", {{"type", "mrkdwn"}, {"text", text}, {"verbatim", true}}}};
}

// Escaped, and without Slack's own marks (*bold*, _italic_, ~struck~, `code`) where they would pair up.
std::string SlackText(const std::string& text, size_t bytes_max) {
  std::string plain = Escaped(Shortened(text, bytes_max));
  std::string out;
  for (const char c : plain) {
    if (c == '*' || c == '~' || c == '`') out += "\xe2\x80\x8b";  // A space of no width.
    out += c;
  }
  return out;
}

std::string LeftOut(size_t count) { return "… and " + std::to_string(count) + " more"; }
std::string Dropped(uint64_t count) {
  return std::to_string(count) + " earlier notices were dropped: the webhook was away too long";
}

}  // namespace

std::string Body(Format format, std::span<const Notice> notices, const Envelope& envelope) {
  switch (format) {
    case Format::kJson: return JsonBody(notices, envelope);
    case Format::kSlack: return SlackBody(notices, envelope);
    case Format::kGrafana: return GrafanaBody(notices, envelope);
  }
  return "";
}

std::string JsonBody(std::span<const Notice> notices, const Envelope& envelope) {
  const std::string link = RunLink(envelope.page_url, notices.front().run);
  Value out;
  out["version"] = 1;
  out["source"] = envelope.source;
  out["webhook"] = envelope.webhook;
  out["run"] = notices.front().run;
  out["url"] = link.empty() ? Value(nullptr) : Value(link);
  out["severity"] = model::Token(Worst(notices));
  out["title"] = Title(notices);
  std::map<std::string, size_t> counts;
  for (const Notice& each : notices) ++counts[Token(each.kind)];
  out["counts"] = counts;
  out["events"] = Value::array();
  for (const Notice& each : notices.first(std::min(notices.size(), kListedMax)))
    out["events"].push_back(EventValue(each));
  out["events_left_out"] = notices.size() - std::min(notices.size(), kListedMax);
  out["dropped"] = envelope.dropped;
  return Dump(out);
}

std::string SlackBody(std::span<const Notice> notices, const Envelope& envelope) {
  Value out;
  out["text"] = SlackText(Title(notices), kSlackLineBytesMax);  // What a phone's notification shows.
  const std::string link = RunLink(envelope.page_url, notices.front().run);
  Value blocks = Value::array();
  blocks.push_back(Section(SlackText(Title(notices), kSlackLineBytesMax)));
  const std::vector<const Notice*> shown = ToRead(notices, kSlackListedMax);
  // A message of one thing that its title says whole needs no list.
  if (Subjects(notices) > 1 || shown.front()->episode) {
    for (const Notice* each : shown)
      blocks.push_back(
          Section(std::string(Dot(*each)) + " " + SlackText(Sentence(*each), kSlackLineBytesMax)));
  }
  std::string foot;
  if (Subjects(notices) > shown.size()) foot = LeftOut(Subjects(notices) - shown.size());
  if (envelope.dropped > 0) foot += (foot.empty() ? "" : ". ") + Dropped(envelope.dropped);
  if (!link.empty()) foot += (foot.empty() ? "<" : " · <") + Escaped(link) + "|Open the run>";
  if (!foot.empty())
    blocks.push_back({{"type", "context"},
                      {"elements", {{{"type", "mrkdwn"}, {"text", foot.substr(0, kSlackTextBytesMax)}}}}});
  out["blocks"] = blocks;
  return Dump(out);
}

std::string GrafanaBody(std::span<const Notice> notices, const Envelope& envelope) {
  Value out;
  int64_t begin = notices.front().unix_ms, end = notices.front().unix_ms;
  std::set<std::string> tags = {"gyrostat", "run:" + notices.front().run,
                                std::string("severity:") + model::Token(notices.front().severity)};
  for (const Notice& each : notices) {
    begin = std::min(begin, each.IsOver() ? each.begun_unix_ms : each.unix_ms);
    end = std::max(end, each.unix_ms);
    tags.insert(Token(each.kind));
    if (each.finding) tags.insert("detector:" + each.finding->detector);
    if (each.intervention) tags.insert(std::string("intervention:") + model::Token(each.intervention->kind));
  }
  out["time"] = begin;
  if (notices.front().IsOver() && end > begin) out["timeEnd"] = end;
  out["tags"] = tags;
  std::string text = Escaped(Title(notices));
  const std::vector<const Notice*> shown = ToRead(notices, kGrafanaListedMax);
  if (shown.size() > 1)
    for (const Notice* each : shown) text += "\n" + Escaped(Sentence(*each));
  if (Subjects(notices) > shown.size()) text += "\n" + LeftOut(Subjects(notices) - shown.size());
  if (envelope.dropped > 0) text += "\n" + Dropped(envelope.dropped);
  const std::string link = RunLink(envelope.page_url, notices.front().run);
  if (!link.empty()) text += "\n<a href=\"" + Escaped(link) + "\">Open the run</a>";
  out["text"] = text;
  return Dump(out);
}

}  // namespace gyrostat::notify
