#include "logs/lines.h"

#include "logs/number.h"

namespace gyrostat::logs {

void LineReader::Emit(std::string_view line, bool complete) {
  if (first_) {
    first_ = false;
    if (line.substr(0, 3) == "\xef\xbb\xbf") line.remove_prefix(3);
  }
  if (too_long_) {
    too_long_ = false;
    sink_->Skip(number_, "the line is longer than 64 MiB");
    return;
  }
  if (!line.empty()) OnLine(line, number_, complete);
}

void LineReader::Feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (after_cr_) {
      after_cr_ = false;
      if (bytes[0] == '\n') {  // The second half of \r\n.
        ++number_;
        bytes.remove_prefix(1);
        continue;
      }
    }
    const size_t end = bytes.find_first_of("\r\n");
    if (end == std::string_view::npos) {
      if (rest_.size() + bytes.size() > kLineBytesMax) {
        too_long_ = true;
        rest_.clear();
      }
      if (!too_long_) rest_.append(bytes);
      return;
    }
    if (rest_.empty()) {
      Emit(bytes.substr(0, end), true);
    } else {
      rest_.append(bytes.substr(0, end));
      Emit(rest_, true);
      rest_.clear();
    }
    if (bytes[end] == '\n') ++number_;
    else after_cr_ = true;
    bytes.remove_prefix(end + 1);
  }
}

void LineReader::Finish() {
  if (!rest_.empty() || too_long_) Emit(rest_, false);
  rest_.clear();
  OnEnd();
}

std::string_view WithoutAnsi(std::string_view line, std::string* scratch) {
  size_t escape = line.find('\x1b');
  if (escape == std::string_view::npos) return line;
  scratch->clear();
  while (escape != std::string_view::npos) {
    scratch->append(line.substr(0, escape));
    size_t end = escape + 1;
    if (end < line.size() && line[end] == '[') {  // CSI: parameters, then one byte from @ to ~.
      ++end;
      while (end < line.size() && (line[end] < '@' || line[end] > '~')) ++end;
    }
    line = end < line.size() ? line.substr(end + 1) : std::string_view();
    escape = line.find('\x1b');
  }
  scratch->append(line);
  return *scratch;
}

namespace {

// A number of at most six digits at `at`; moves behind it.
std::optional<uint32_t> SmallNumber(std::string_view line, size_t* at) {
  uint32_t value = 0;
  const size_t begin = *at;
  while (*at < line.size() && *at - begin < 6 && IsDigit(line[*at]))
    value = value * 10 + static_cast<uint32_t>(line[(*at)++] - '0');
  if (*at == begin) return std::nullopt;
  return value;
}

// "[word 3]" with or without a blank and a colon.
std::optional<uint32_t> Bracketed(std::string_view line, std::string_view lower_word, size_t* length) {
  if (line.empty() || line[0] != '[' || !StartsWithNoCase(line.substr(1), lower_word)) return std::nullopt;
  size_t at = 1 + lower_word.size();
  while (at < line.size() && line[at] == ' ') ++at;
  const auto value = SmallNumber(line, &at);
  if (!value || at >= line.size() || line[at] != ']') return std::nullopt;
  ++at;
  if (at < line.size() && line[at] == ':') ++at;
  *length = at;
  return value;
}

}  // namespace

std::string_view WithoutRank(std::string_view line, std::optional<uint32_t>* rank) {
  rank->reset();
  size_t at = line.find_first_not_of(' ');
  if (at == std::string_view::npos) return line;
  // srun --label: "  55: text". A lone number before a colon is nothing else, unless more digits follow (a time).
  size_t end = at;
  if (const auto value = SmallNumber(line, &end);
      value && end + 1 < line.size() && line[end] == ':' && line[end + 1] == ' ') {
    *rank = value;
    line.remove_prefix(end + 2);
  }
  for (bool more = true; more;) {
    more = false;
    at = line.find_first_not_of(' ');
    if (at == std::string_view::npos) return line;
    for (const std::string_view word : {"rank", "default"}) {
      size_t length = 0;
      const auto value = Bracketed(line.substr(at), word, &length);
      if (!value) continue;
      *rank = value;
      line.remove_prefix(at + length);
      more = true;
      break;
    }
  }
  return line;
}

}  // namespace gyrostat::logs
