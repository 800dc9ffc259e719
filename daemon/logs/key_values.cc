#include "logs/key_values.h"

#include <algorithm>

#include "logs/number.h"

namespace gyrostat::logs {
namespace {

bool StartsWord(char c) { return IsAlpha(c) || c == '_'; }
bool InWord(char c) {
  return IsAlpha(c) || IsDigit(c) || c == '_' || c == '/' || c == '.' || c == '@' || c == '>' || c == '-' || c == '%';
}

size_t SkipBlanks(std::string_view line, size_t at) {
  while (at < line.size() && (line[at] == ' ' || line[at] == '\t')) ++at;
  return at;
}

// Behind "(ms)" where that stands at `at`: a unit that belongs to the name.
size_t SkipUnit(std::string_view line, size_t at) {
  if (at >= line.size() || line[at] != '(') return at;
  const size_t close = line.substr(at, 24).find(')');
  if (close == std::string_view::npos) return at;
  for (const char c : line.substr(at + 1, close - 1))
    if (!IsAlpha(c) && c != '/' && c != ' ') return at;
  return SkipBlanks(line, at + close + 1);
}

}  // namespace

void FindKeyValues(std::string_view line, std::vector<KeyValue>* out) {
  out->clear();
  size_t key_begin = std::string_view::npos;
  for (size_t i = 0; i < line.size();) {
    if (!StartsWord(line[i])) {
      key_begin = std::string_view::npos;
      ++i;
      // What follows a digit directly is its unit, not a name.
      while (IsDigit(line[i - 1]) && i < line.size() && InWord(line[i])) ++i;
      continue;
    }
    if (key_begin == std::string_view::npos) key_begin = i;
    size_t end = i;
    while (end < line.size() && InWord(line[end])) ++end;
    size_t at = SkipUnit(line, SkipBlanks(line, end));
    const size_t key_end = end;
    bool sign = false;
    if (at < line.size() && (line[at] == '\'' || line[at] == '"')) at = SkipBlanks(line, at + 1);
    if (at < line.size() && (line[at] == ':' || line[at] == '=')) {
      sign = true;
      at = SkipBlanks(line, at + 1);
      if (at < line.size() && (line[at] == '[' || line[at] == '(' || line[at] == '\'' || line[at] == '"'))
        at = SkipBlanks(line, at + 1);
    }
    size_t length = 0;
    const auto number = (sign || at > end) && at < line.size() ? NumberAt(line.substr(at), &length) : std::nullopt;
    // "number of nan iterations: 0" counts NaNs and is none.
    const bool word = number && !sign && IsAlpha(line[at]) && line.substr(i, end - i) == "of";
    if (number && !word) {
      out->push_back({line.substr(key_begin, key_end - key_begin), *number});
      key_begin = std::string_view::npos;
      i = at + length;
      while (i < line.size() && (IsAlpha(line[i]) || line[i] == '%')) ++i;
      continue;
    }
    if (sign || at >= line.size() || !StartsWord(line[at])) key_begin = std::string_view::npos;
    i = sign ? std::max(at, end) : end;
    if (key_begin != std::string_view::npos) i = at;
  }
}

void AddKeyValues(std::string_view line, std::vector<KeyValue>* scratch, Record* record) {
  FindKeyValues(line, scratch);
  for (const KeyValue& each : *scratch) record->Add(each.key, each.value);
}

}  // namespace gyrostat::logs
