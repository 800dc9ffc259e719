#include "ctl/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <utility>

namespace gyrostat::ctl {
namespace {

// Reads one code point of valid, shortest-form UTF-8. Returns its length in bytes, 0 where the bytes are not UTF-8.
size_t DecodeUtf8(std::string_view text, uint32_t* code) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t length = lead < 0x80 ? 1 : (lead >> 5) == 6 ? 2 : (lead >> 4) == 14 ? 3 : (lead >> 3) == 30 ? 4 : 0;
  if (length == 0 || text.size() < length) return 0;
  *code = length == 1 ? lead : lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0) != 0x80) return 0;
    *code = (*code << 6) | (next & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = *code >= 0xd800 && *code <= 0xdfff;
  return *code < kSmallest[length] || *code > 0x10ffff || surrogate ? 0 : length;
}

// Marks that show nothing and change how the rest reads.
bool IsInvisibleMark(uint32_t code) {
  return (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2060 && code <= 0x2069) || code == 0xfeff;
}

void AppendHex(uint32_t value, int digits_min, std::string* out) {
  std::array<char, 8> raw;
  const auto end = std::to_chars(raw.data(), raw.data() + raw.size(), value, 16).ptr;
  const auto digits = static_cast<int>(end - raw.data());
  out->append(static_cast<size_t>(std::max(0, digits_min - digits)), '0');
  out->append(raw.data(), end);
}

const char* Code(Tint tint) {
  switch (tint) {
    case Tint::kNone: return "";
    case Tint::kBold: return "\x1b[1m";
    case Tint::kDim: return "\x1b[2m";
    case Tint::kGood: return "\x1b[32m";
    case Tint::kWarn: return "\x1b[33m";
    case Tint::kBad: return "\x1b[31m";
  }
  return "";
}

}  // namespace

std::string Escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    uint32_t code = 0;
    const size_t length = DecodeUtf8(text, &code);
    if (length == 0 || code < 0x20 || code == 0x7f) {
      out.append("\\x");
      AppendHex(static_cast<unsigned char>(text[0]), 2, &out);
      text.remove_prefix(1);
      continue;
    }
    if ((code >= 0x80 && code <= 0x9f) || IsInvisibleMark(code)) {
      out.append("\\u{");
      AppendHex(code, 1, &out);
      out.push_back('}');
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  return out;
}

size_t Columns(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string Cut(const Style& style, std::string_view text, size_t columns) {
  if (columns == 0 || Columns(text) <= columns) return std::string(text);
  const std::string_view mark = style.unicode ? "…" : "...";
  const size_t keep = columns - std::min(columns, Columns(mark));
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    const bool starts = (static_cast<unsigned char>(text[end]) & 0xc0) != 0x80;
    if (starts && seen++ == keep) break;
  }
  return std::string(text.substr(0, end)) + std::string(mark);
}

std::string Paint(const Style& style, Tint tint, std::string_view text) {
  if (!style.colour || tint == Tint::kNone || text.empty()) return std::string(text);
  return Code(tint) + std::string(text) + "\x1b[0m";
}

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  std::array<char, 32> raw;
  const auto end = std::to_chars(raw.data(), raw.data() + raw.size(), value, std::chars_format::general, 6).ptr;
  return std::string(raw.data(), end);
}

std::string Count(uint64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string Rfc3339(int64_t unix_ms) {
  if (unix_ms == 0) return "";
  int64_t seconds = unix_ms / 1000, ms = unix_ms % 1000;
  if (ms < 0) {
    ms += 1000;
    --seconds;
  }
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc{};
  if (gmtime_r(&time, &utc) == nullptr) return "";
  std::array<char, 40> raw;
  const size_t length = std::strftime(raw.data(), raw.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  const std::string fraction = std::to_string(1000 + ms).substr(1);
  return std::string(raw.data(), length) + "." + fraction + "Z";
}

std::string Ago(int64_t now_unix_ms, int64_t then_unix_ms) {
  if (then_unix_ms == 0) return "never";
  // In double: the difference of two strangers' numbers may not fit.
  const double exact = (static_cast<double>(now_unix_ms) - static_cast<double>(then_unix_ms)) / 1000;
  if (exact < -60 || exact > 1e12) return Rfc3339(then_unix_ms);
  const auto seconds = static_cast<int64_t>(exact);
  if (seconds < 1) return "just now";
  if (seconds < 120) return std::to_string(seconds) + " s ago";
  if (seconds < 7200) return std::to_string(seconds / 60) + " min ago";
  if (seconds < 172800) return std::to_string(seconds / 3600) + " h ago";
  return std::to_string(seconds / 86400) + " d ago";
}

std::string Sparkline(const Style& style, std::span<const double> values, size_t columns) {
  static constexpr std::array<std::string_view, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr std::array<std::string_view, 8> kAscii = {"_", ".", ":", "-", "=", "+", "*", "#"};
  const auto& glyphs = style.unicode ? kBlocks : kAscii;
  double low = INFINITY, high = -INFINITY;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const size_t buckets = std::min(columns, values.size());
  std::string out;
  for (size_t i = 0; i < buckets; ++i) {
    const size_t begin = i * values.size() / buckets, end = (i + 1) * values.size() / buckets;
    const auto bucket = values.subspan(begin, end - begin);
    // The largest of a bucket: a spike of one step must not be averaged away.
    double top = -INFINITY;
    bool finite = true;
    for (const double value : bucket) {
      finite = finite && std::isfinite(value);
      top = std::max(top, value);
    }
    if (!finite) {
      out.append("x");
      continue;
    }
    // Halves, so that the range of two huge opposite values does not overflow.
    const double share = high > low ? (top / 2 - low / 2) / (high / 2 - low / 2) : 0;
    out.append(glyphs[std::min<size_t>(7, static_cast<size_t>(share * 8))]);
  }
  return out;
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::Row(std::vector<Cell> cells, std::string note) {
  cells.resize(columns_.size());
  for (Cell& cell : cells) cell.text = Escape(cell.text);
  rows_.push_back({std::move(cells), std::move(note)});
}

std::string Table::Render(const Style& style) const {
  if (rows_.empty()) return "";
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(Columns(columns_[c].name));
    for (const Line& row : rows_) widths[c] = std::max(widths[c], Columns(row.cells[c].text));
  }
  std::string out;
  const auto line = [&](const std::vector<Cell>& cells) {
    std::string blanks;  // Kept back, so that no line ends in blanks.
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string pad(widths[c] - Columns(cells[c].text), ' ');
      if (columns_[c].right) blanks += pad;
      if (!cells[c].text.empty()) out += std::exchange(blanks, "") + Paint(style, cells[c].tint, cells[c].text);
      if (!columns_[c].right) blanks += pad;
      blanks += "  ";
    }
    out += "\n";
  };
  std::vector<Cell> heading;
  for (const Column& column : columns_) heading.push_back({column.name, Tint::kDim});
  line(heading);
  for (const Line& row : rows_) {
    line(row.cells);
    if (!row.note.empty()) out += Wrap(style, row.note, 4);
  }
  return out;
}

std::string Wrap(const Style& style, std::string_view text, size_t indent) {
  const std::string safe = Escape(text);
  const size_t width = style.columns > indent + 20 ? style.columns - indent : 0;
  std::string out, line;
  const auto flush = [&] {
    if (!line.empty()) out += std::string(indent, ' ') + line + "\n";
    line.clear();
  };
  size_t begin = 0;
  while (begin < safe.size()) {
    const size_t end = std::min(safe.find(' ', begin), safe.size());
    const std::string_view word = std::string_view(safe).substr(begin, end - begin);
    if (width > 0 && !line.empty() && Columns(line) + 1 + Columns(word) > width) flush();
    if (!line.empty()) line += ' ';
    line += word;
    begin = end + 1;
  }
  flush();
  return out;
}

}  // namespace gyrostat::ctl
