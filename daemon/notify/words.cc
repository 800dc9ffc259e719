#include "notify/words.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/text.h"

namespace gyrostat::notify {
namespace {

constexpr size_t kTitleBytesMax = 300, kSentenceBytesMax = 600;

std::string Stepped(const char* what, model::Step step) { return what + (" at step " + std::to_string(step)); }

std::string OfFinding(const Notice& notice) {
  const model::Finding& finding = *notice.finding;
  const std::string what = finding.detector + " (" + model::Token(notice.severity) + ")";
  if (notice.IsOver()) {
    const std::string steps = "steps " + std::to_string(finding.step_begin) + " to " +
                              std::to_string(finding.step_end.value_or(finding.step_detected));
    return what + " is over, " + steps + (finding.healed.value_or(false) ? ", healed: " : ": ") + finding.message;
  }
  const bool worse = notice.kind == Kind::kFindingWorsened;
  return Stepped((what + (worse ? " got worse" : "")).c_str(), finding.step_detected) + ": " + finding.message;
}

std::string OfEpisode(const Notice& notice) {
  const diagnose::Diagnosis& episode = *notice.episode;
  const std::string findings =
      std::to_string(episode.findings) + (episode.findings == 1 ? " finding" : " findings");
  const std::string what = notice.kind == Kind::kEpisodeOpened   ? "Episode"
                           : notice.kind == Kind::kEpisodeClosed ? "Episode over"
                                                                 : "Episode got worse";
  std::string text = what + " (" + model::Token(notice.severity) + ", " + findings + "): " + episode.headline;
  if (!notice.IsOver() && !episode.advice.empty()) text += " " + episode.advice;
  return text;
}

std::string OfIntervention(const Notice& notice) {
  const model::Intervention& intent = *notice.intervention;
  std::string text = std::string(model::Token(intent.kind)) + " " + intent.id;
  switch (notice.kind) {
    case Kind::kInterventionWaiting:
      text += " waits for an answer (gyrostatctl approve " + intent.id + ", or reject): ";
      break;
    case Kind::kInterventionApplied: text += Stepped(" was applied", notice.step) + ": "; break;
    case Kind::kInterventionFailed: text += std::string(" was not done (") + model::Token(intent.state) + "): "; break;
    default: text += std::string(" was judged ") + (intent.outcome ? model::Token(*intent.outcome) : "") + ": ";
  }
  return text + intent.reason;
}

std::string KindInWords(Kind kind) {
  std::string words = Token(kind);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

}  // namespace

model::Severity Worst(std::span<const Notice> notices) {
  model::Severity worst = model::Severity::kInfo;
  for (const Notice& each : notices)
    if (!each.IsOver()) worst = std::max(worst, each.severity);
  return worst;
}

std::string Title(std::span<const Notice> notices) {
  if (notices.empty()) return "";
  const bool over = std::all_of(notices.begin(), notices.end(), [](const Notice& n) { return n.IsOver(); });
  std::string title = "[" + std::string(over ? "over" : model::Token(Worst(notices))) + "] run " +
                      notices.front().run + ": ";
  const std::vector<const Notice*> first = ToRead(notices, 1);
  if (first.front()->episode) {
    title += first.front()->episode->headline;
  } else if (Subjects(notices) == 1) {
    title += Sentence(*first.front());
  } else {
    std::map<Kind, size_t> counts;
    for (const Notice& each : notices) ++counts[each.kind];
    std::string list;
    for (const auto& [kind, count] : counts)
      list += (list.empty() ? "" : ", ") + std::to_string(count) + " " + KindInWords(kind);
    title += list;
  }
  return Shortened(base::CleanText(title, title.size()), kTitleBytesMax);
}

std::string Sentence(const Notice& notice) {
  std::string text;
  if (notice.finding) text = OfFinding(notice);
  else if (notice.episode) text = OfEpisode(notice);
  else if (notice.intervention) text = OfIntervention(notice);
  else if (notice.kind == Kind::kRunEnded) text = "The attempt has ended: " + notice.reason;
  else text = "A test, asked for with gyrostatd --test-notify. Nothing is wrong.";
  return Shortened(base::CleanText(text, text.size()), kSentenceBytesMax);
}

std::vector<const Notice*> ToRead(std::span<const Notice> notices, size_t max) {
  std::map<std::string, const Notice*> newest;
  for (const Notice& each : notices) newest[each.subject] = &each;
  std::vector<const Notice*> chosen;
  for (const Notice& each : notices)
    if (newest[each.subject] == &each) chosen.push_back(&each);
  std::stable_sort(chosen.begin(), chosen.end(), [](const Notice* a, const Notice* b) {
    if (a->episode.has_value() != b->episode.has_value()) return a->episode.has_value();
    if (a->IsOver() != b->IsOver()) return b->IsOver();
    return a->severity > b->severity;
  });
  if (chosen.size() > max) chosen.resize(max);
  return chosen;
}

size_t Subjects(std::span<const Notice> notices) { return ToRead(notices, notices.size()).size(); }

std::string RunLink(const std::string& page_url, const std::string& run) {
  if (page_url.empty()) return "";
  std::string link = page_url;
  while (!link.empty() && link.back() == '/') link.pop_back();
  link += "/#";
  constexpr char kHex[] = "0123456789ABCDEF";
  for (const char c : run) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x80 && std::isalnum(byte) != 0) || c == '-' || c == '_' || c == '.' || c == '~') {
      link += c;
    } else {
      link += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return link;
}

std::string Shortened(std::string text, size_t bytes_max) {
  constexpr char kMore[] = "…";
  if (text.size() <= bytes_max) return text;
  return base::CleanText(text, bytes_max - std::min(bytes_max, sizeof(kMore) - 1)) + kMore;
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else out += c;
  }
  return out;
}

}  // namespace gyrostat::notify
