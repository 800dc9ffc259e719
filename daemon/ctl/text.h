// Text for terminals: safe to print, aligned, coloured only where asked for.
//
// Names and messages come from training jobs, so from strangers: whatever is printed goes through Escape, here, once,
// and not at each caller. Pure: what the terminal can do comes in as a Style.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyrostat::ctl {

// What the output may use. main.cc decides (a terminal, NO_COLOR, the locale); tests use the default.
struct Style {
  bool colour = false;
  bool unicode = true;   // False: sparklines and ellipses in ASCII.
  size_t columns = 0;    // Width to wrap and cut to; 0: do neither.
};

enum class Tint { kNone, kBold, kDim, kGood, kWarn, kBad };

// `text` with every byte that could move a cursor, forge a line or reverse the reading order written as \xNN or \u{N}:
// C0, DEL, C1, invalid UTF-8, bidirectional and zero-width marks. Printable UTF-8 stays.
std::string Escape(std::string_view text);

// Terminal columns of escaped text, one for each code point.
size_t Columns(std::string_view text);

// At most `columns` columns; what is cut is marked by an ellipsis. 0: not cut.
std::string Cut(const Style& style, std::string_view text, size_t columns);

// `text` in colour where the style has any.
std::string Paint(const Style& style, Tint tint, std::string_view text);

// Six significant digits; "NaN", "Infinity", "-Infinity".
std::string Number(double value);

// "1 head", "2 heads": `noun` takes an s.
std::string Count(uint64_t count, std::string_view noun);

// "2026-03-01T12:00:00.250Z"; "" for 0, which on the wire means never.
std::string Rfc3339(int64_t unix_ms);

// "4 s ago", "3 min ago", "2 h ago", "5 d ago"; "never" for 0; "just now" for the future within a minute of clock skew.
std::string Ago(int64_t now_unix_ms, int64_t then_unix_ms);

// One character for each bucket of `values`, scaled between the smallest and largest finite one; 'x' marks a bucket
// that holds a value that is not finite. At most `columns` buckets; "" for no values.
std::string Sparkline(const Style& style, std::span<const double> values, size_t columns);

struct Cell {
  std::string text;  // Escaped by Table.
  Tint tint = Tint::kNone;
};

// Columns as wide as their widest cell, two blanks between; numbers to the right. A row may carry a note: a sentence
// that is printed below it, indented, wrapped to the style's width.
class Table {
 public:
  struct Column {
    std::string name;
    bool right = false;
  };
  explicit Table(std::vector<Column> columns);

  // As many cells as columns.
  void Row(std::vector<Cell> cells, std::string note = "");
  bool empty() const { return rows_.empty(); }

  // With a heading line. "" without rows.
  std::string Render(const Style& style) const;

 private:
  struct Line {
    std::vector<Cell> cells;
    std::string note;
  };
  std::vector<Column> columns_;
  std::vector<Line> rows_;
};

// Escaped `text`, broken at blanks so that no line is wider than the style (0: one line), each line led by `indent`
// blanks and ended by a newline.
std::string Wrap(const Style& style, std::string_view text, size_t indent);

}  // namespace gyrostat::ctl
