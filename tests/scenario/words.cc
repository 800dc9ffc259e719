#include "scenario/words.h"

#include "scenario/notation.h"

namespace gyrostat::scenario {
namespace {

bool IsKeyChar(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.'; }

// The length of `key` in front of = or ~, or 0.
size_t KeyLength(std::string_view text) {
  size_t size = 0;
  while (size < text.size() && IsKeyChar(text[size])) ++size;
  const bool starts_with_letter = size > 0 && text[0] >= 'a' && text[0] <= 'z';
  return starts_with_letter && size < text.size() && (text[size] == '=' || text[size] == '~') ? size : 0;
}

}  // namespace

std::string Cut(std::string_view line, std::vector<Word>* words) {
  words->clear();
  for (size_t at = 0; at < line.size();) {
    if (line[at] == ' ' || line[at] == '\t') {
      ++at;
      continue;
    }
    if (line[at] == '#') break;
    Word word;
    if (const size_t key = KeyLength(line.substr(at)); key > 0) {
      word.key = line.substr(at, key);
      word.mark = line[at + key];
      at += key + 1;
    }
    if (at < line.size() && line[at] == '"') {
      const size_t end = line.find('"', at + 1);
      if (end == std::string_view::npos) return "a quote is not closed";
      word.value = line.substr(at + 1, end - at - 1);
      at = end + 1;
      if (at < line.size() && line[at] != ' ' && line[at] != '\t') return "wanted a space after a closing quote";
    } else {
      size_t end = at;
      while (end < line.size() && line[end] != ' ' && line[end] != '\t') ++end;
      word.value = line.substr(at, end - at);
      at = end;
    }
    words->push_back(std::move(word));
  }
  return {};
}

bool ReadDuration(std::string_view text, int64_t* ms) {
  constexpr int64_t kDayMs = 86400000;
  struct Unit {
    std::string_view name;
    int64_t ms;
  };
  for (const Unit& unit : {Unit{"ms", 1}, Unit{"s", 1000}, Unit{"m", 60000}, Unit{"h", 3600000}}) {
    if (text.size() <= unit.name.size() || text.substr(text.size() - unit.name.size()) != unit.name) continue;
    const std::string_view number = text.substr(0, text.size() - unit.name.size());
    uint64_t count = 0;
    if (!ReadCount(number, static_cast<uint64_t>(kDayMs / unit.ms), &count)) continue;
    *ms = static_cast<int64_t>(count) * unit.ms;
    return *ms > 0;
  }
  return false;
}

bool ReadRange(std::string_view text, Range* range) {
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    if (!ReadNumber(text, &range->low)) return false;
    range->high = range->low;
    return true;
  }
  return ReadNumber(text.substr(0, dots), &range->low) && ReadNumber(text.substr(dots + 2), &range->high) &&
         range->low <= range->high;
}

std::vector<std::string> ReadList(std::string_view text) {
  std::vector<std::string> items;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    items.emplace_back(text.substr(0, comma));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return items;
}

}  // namespace gyrostat::scenario
