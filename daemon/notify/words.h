// Notices as sentences: what all formats say alike. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "notify/notice.h"

namespace gyrostat::notify {

// What a message says beside its notices.
struct Envelope {
  std::string webhook;   // Its name.
  std::string source;    // "gyrostatd/0.1.0".
  std::string page_url;  // Empty: no link.
  uint64_t dropped = 0;  // Notices of this webhook that were lost before this message.
};

model::Severity Worst(std::span<const Notice> notices);

// One line without markup: "[critical] run x: …". Of one notice what it says; of an episode its headline; of many, how
// many of which kind. At most 300 bytes, cut at a character.
std::string Title(std::span<const Notice> notices);

// One sentence or two about one notice, without its run. At most 600 bytes.
std::string Sentence(const Notice& notice);

// Those that a person should read: the newest of each subject, episodes first, then the severe. At most `max`.
std::vector<const Notice*> ToRead(std::span<const Notice> notices, size_t max);
// How many subjects the notices are about.
size_t Subjects(std::span<const Notice> notices);

// The built-in page of the run, or nothing where there is no page_url.
std::string RunLink(const std::string& page_url, const std::string& run);

// `text` cut to bytes_max at a UTF-8 character, with "…" where it was cut.
std::string Shortened(std::string text, size_t bytes_max);
// With &, < and > as entities, as Slack and HTML want them.
std::string Escaped(const std::string& text);

}  // namespace gyrostat::notify
