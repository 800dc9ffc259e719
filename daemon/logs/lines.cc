#include "logs/lines.h"

#include "logs/number.h"

namespace gyrostat::logs {
namespace {

constexpr size_t kTornLinesMax = 4096;  // At a time: as many as tasks that print long lines at once.

// A number of at most six digits at `at`; moves behind it.
std::optional<uint32_t> SmallNumber(std::string_view line, size_t* at) {
  uint32_t value = 0;
  const size_t begin = *at;
  while (*at < line.size() && *at - begin < 6 && IsDigit(line[*at]))
    value = value * 10 + static_cast<uint32_t>(line[(*at)++] - '0');
  if (*at == begin) return std::nullopt;
  return value;
}

// srun --label: "  55: text". A lone number before a colon is nothing else, unless more digits follow (a time).
std::optional<uint32_t> LabelAt(std::string_view line, size_t* length) {
  size_t at = line.find_first_not_of(' ');
  if (at == std::string_view::npos) return std::nullopt;
  const auto value = SmallNumber(line, &at);
  if (!value || at + 1 >= line.size() || line[at] != ':' || line[at + 1] != ' ') return std::nullopt;
  *length = at + 2;
  return value;
}

}  // namespace

void LineReader::Emit(std::string_view line, bool complete) {
  if (first_) {
    first_ = false;
    if (line.substr(0, 3) == "\xef\xbb\xbf") line.remove_prefix(3);
  }
  // Blocks of a file that a crash of the machine has lost are NULs.
  while (!line.empty() && line.front() == '\0') line.remove_prefix(1);
  if (too_long_) {
    too_long_ = false;
    sink_->Skip(number_, "the line is longer than 64 MiB");
    return;
  }
  if (!line.empty() && !Join(line, complete)) OnLine(line, number_, complete);
}

// False: `line` is not part of one that was cut.
bool LineReader::Join(std::string_view line, bool complete) {
  size_t length = 0;
  const auto label = LabelAt(line, &length);
  if (!label) return false;
  const std::string_view content = line.substr(length);
  const bool cut = content.size() == kLabelledBytes && complete;
  const auto it = torn_.find(*label);
  if (it == torn_.end()) {
    if (!cut || torn_.size() >= kTornLinesMax) return false;
    torn_[*label].assign(line);
    return true;
  }
  it->second.append(content);
  if (cut && it->second.size() < kLineBytesMax) return true;
  OnLine(it->second, number_, complete);
  torn_.erase(it);
  return true;
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
  for (const auto& [label, line] : torn_) OnLine(line, number_, true);  // They only were as long.
  torn_.clear();
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
    } else if (end < line.size() && line[end] == ']') {  // OSC (titles, links): up to BEL or ESC and a backslash.
      while (end < line.size() && line[end] != '\a' && line[end] != '\x1b') ++end;
      if (end < line.size() && line[end] == '\x1b') ++end;
    } else {  // "ESC ( B", as tput sgr0 writes it: intermediates, then one byte.
      while (end < line.size() && line[end] >= ' ' && line[end] <= '/') ++end;
    }
    line = end < line.size() ? line.substr(end + 1) : std::string_view();
    escape = line.find('\x1b');
  }
  scratch->append(line);
  return *scratch;
}

namespace {

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
  size_t labelled = 0;
  if (const auto value = LabelAt(line, &labelled)) {
    *rank = value;
    line.remove_prefix(labelled);
  }
  for (bool more = true; more;) {
    more = false;
    const size_t at = line.find_first_not_of(' ');
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
