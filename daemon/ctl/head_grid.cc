#include "ctl/head_grid.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/signal.h"

namespace gyrostat::ctl {
namespace {

constexpr size_t kRowsMin = 4;  // Two of words, and a picture that deserves the name.
constexpr size_t kCellColumnsMax = 4;
constexpr size_t kDefaultColumns = 80;
constexpr size_t kKeyColumnsMin = 40;  // Below it the key has the worst head alone.

// Close to viridis (Smith and van der Walt 2015) in the 6 x 6 x 6 cube of the 256 colours, lightness always rising.
constexpr std::array<int, 8> kRamp = {53, 55, 24, 30, 36, 77, 184, 226};
constexpr size_t kDarkColours = 3;  // On so many a mark is white, on the others black.
constexpr std::string_view kGlyphs = " `:-=+*#";
static_assert(kGlyphs.size() == kRamp.size());

// Blocks of equal size, the last ones smaller; `cells` at most.
struct Blocks {
  Blocks(size_t items, size_t cells) : size((items + cells - 1) / cells), count((items + size - 1) / size) {}
  size_t size, count;
};

bool IsMeasured(float value) { return !model::IsAbsent(static_cast<double>(value)); }

float Worse(float a, float b) {
  if (!std::isfinite(a)) return a;
  return !std::isfinite(b) || b > a ? b : a;
}

struct Range {
  double low = 0, high = 0;
  size_t worst = 0;  // Index of the largest finite value.
  size_t over = 0, nonfinite = 0;
  bool any = false;  // There is a finite value.
};

Range RangeOf(const HeadGrid& grid) {
  Range range;
  for (size_t i = 0; i < grid.values.size(); ++i) {
    const auto value = static_cast<double>(grid.values[i]);
    if (!IsMeasured(grid.values[i])) continue;
    if (!std::isfinite(value)) {
      ++range.nonfinite;
      continue;
    }
    if (!range.any || value > range.high) {
      range.high = value;
      range.worst = i;
    }
    range.low = range.any ? std::min(range.low, value) : value;
    range.any = true;
    if (grid.tau > 0 && value > grid.tau) ++range.over;
  }
  return range;
}

// The brightest colour is tau: how far a head has to go is what the picture is for.
double TopOf(const HeadGrid& grid, const Range& range) {
  return grid.tau > 0 && grid.tau > range.low ? grid.tau : range.high;
}

size_t LevelOf(double value, double low, double top) {
  if (!(top > low)) return 0;
  // Halves, so that the range of two huge opposite values does not overflow.
  const double share = std::clamp((value / 2 - low / 2) / (top / 2 - low / 2), 0.0, 1.0);
  return std::min(kRamp.size() - 1, static_cast<size_t>(share * static_cast<double>(kRamp.size())));
}

std::string Colour(size_t level) {
  return "\x1b[48;5;" + std::to_string(kRamp[level]) + (level < kDarkColours ? ";38;5;231m" : ";38;5;16m");
}

struct Glyph {
  char mark = ' ';
  int level = -1;  // -1: no colour.
  bool operator==(const Glyph&) const = default;
};

Glyph GlyphOf(const Style& style, float value, double low, double top, double tau) {
  if (!IsMeasured(value)) return {'.', -1};
  if (!std::isfinite(value)) return {'x', -1};
  const size_t level = LevelOf(static_cast<double>(value), low, top);
  const bool over = tau > 0 && static_cast<double>(value) > tau;
  return {over ? '!' : style.colour ? ' ' : kGlyphs[level], static_cast<int>(level)};
}

std::string Cells(const Style& style, std::span<const Glyph> glyphs, size_t width) {
  std::string out;
  int colour = -1;
  for (const Glyph& each : glyphs) {
    if (style.colour && each.level != colour) {
      out += each.level < 0 ? std::string("\x1b[0m") : Colour(static_cast<size_t>(each.level));
      colour = each.level;
    }
    out.append(width, each.mark);
  }
  return colour < 0 ? out : out + "\x1b[0m";
}

std::string Ramp(const Style& style) {
  std::string out;
  for (size_t level = 0; level < kRamp.size(); ++level)
    out += style.colour ? Colour(level) + " " : std::string(1, kGlyphs[level]);
  return style.colour ? out + "\x1b[0m" : "[" + out + "]";
}

std::string Heading(const HeadGrid& grid, const Blocks& layers, const Blocks& heads) {
  std::string out = "max logit, " + Count(grid.layers, "layer") + " down, " + Count(grid.heads(), "head") + " across";
  if (layers.size > 1 || heads.size > 1)
    out += "; a cell: the largest of " + std::to_string(layers.size) + " x " + std::to_string(heads.size);
  return out;
}

// The words of the key are cut to the columns that the ramp leaves: the ramp's bytes are no columns.
std::string Key(const Style& style, const HeadGrid& grid, const Range& range, size_t columns) {
  if (!range.any) return Cut(style, Count(range.nonfinite, "head") + " not finite, none finite", columns);
  const size_t heads = grid.heads();
  const std::string worst = "worst L" + std::to_string(range.worst / heads) + "H" +
                            std::to_string(range.worst % heads) + " " + Number(range.high);
  if (columns < kKeyColumnsMin) return Cut(style, worst, columns);
  const std::string low = Number(range.low) + " ";
  std::string words = " " + Number(TopOf(grid, range));
  if (grid.tau > 0) words += TopOf(grid, range) == grid.tau ? " = tau" : ", tau " + Number(grid.tau);
  words += "   " + worst;
  if (grid.tau > 0) words += "   ! over tau: " + Count(range.over, "head");
  if (range.nonfinite > 0) words += "   x not finite: " + std::to_string(range.nonfinite);
  const size_t used = Columns(low) + kRamp.size() + (style.colour ? 0 : 2);
  return low + Ramp(style) + Cut(style, words, columns > used ? columns - used : 1);
}

}  // namespace

size_t GridRowsWanted(const HeadGrid& grid) { return grid.empty() ? 0 : std::max(grid.layers + 2, kRowsMin); }

std::vector<std::string> DrawGrid(const Style& style, const HeadGrid& grid, size_t rows) {
  if (grid.empty() || rows < kRowsMin) return {};
  const size_t columns = style.columns > 0 ? style.columns : kDefaultColumns;
  const size_t label = std::to_string(grid.layers - 1).size() + 2;  // "L12 "
  if (columns <= label + 1) return {};
  const Blocks layers(grid.layers, rows - 2), heads(grid.heads(), columns - label);
  const size_t width = std::min(kCellColumnsMax, (columns - label) / heads.count);
  const Range range = RangeOf(grid);
  const double top = TopOf(grid, range);
  std::vector<std::string> out = {Cut(style, Heading(grid, layers, heads), columns)};
  std::vector<float> row(heads.count);
  std::vector<Glyph> glyphs(heads.count);
  for (size_t block = 0; block < layers.count; ++block) {
    std::fill(row.begin(), row.end(), model::kAbsent);
    for (size_t layer = block * layers.size; layer < std::min(grid.layers, (block + 1) * layers.size); ++layer)
      for (size_t head = 0; head < grid.heads(); ++head)
        row[head / heads.size] = Worse(row[head / heads.size], grid.values[layer * grid.heads() + head]);
    for (size_t i = 0; i < row.size(); ++i) glyphs[i] = GlyphOf(style, row[i], range.low, top, grid.tau);
    std::string name = "L" + std::to_string(block * layers.size);
    name.resize(label, ' ');
    out.push_back(name + Cells(style, glyphs, width));
  }
  out.push_back(Key(style, grid, range, columns));
  return out;
}

}  // namespace gyrostat::ctl
