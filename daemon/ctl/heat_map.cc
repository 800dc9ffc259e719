#include "ctl/heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "ctl/axis.h"
#include "ctl/html.h"
#include "ctl/text.h"
#include "model/signal.h"

namespace gyrostat::ctl {
namespace {

struct Rgb {
  uint8_t red = 0, green = 0, blue = 0;
};

// Viridis at 16 even places (Smith and van der Walt 2015): even to the eye, and for the colour-blind too.
constexpr std::array<Rgb, 16> kRamp = {{
    {0x44, 0x01, 0x54}, {0x48, 0x1a, 0x6c}, {0x47, 0x2f, 0x7d}, {0x41, 0x44, 0x87}, {0x39, 0x56, 0x8c},
    {0x31, 0x68, 0x8e}, {0x2a, 0x78, 0x8e}, {0x23, 0x88, 0x8e}, {0x1f, 0x98, 0x8b}, {0x22, 0xa8, 0x84},
    {0x35, 0xb7, 0x79}, {0x54, 0xc5, 0x68}, {0x7a, 0xd1, 0x51}, {0xa5, 0xdb, 0x36}, {0xd2, 0xe2, 0x1b},
    {0xfd, 0xe7, 0x25}}};
constexpr Rgb kNonfiniteColour = {0xe0, 0x2f, 0x2f}, kAbsentColour = {0x8c, 0x92, 0x9c};
constexpr uint8_t kLevels = 254, kNonfinite = 254, kAbsentLevel = 255;

constexpr double kRowPixels = 16, kHeightMin = 48, kHeightMax = 256, kLabelPixels = 15, kHeadPixels = 26;
constexpr size_t kWorstHeadsTold = 5;
constexpr int kStepTicks = 6;
constexpr size_t kPeakStepsMax = 4096;  // Cells; a map of more tells the steps of its worst heads only.

Rgb ColourOf(double share) {
  const double at = share * (kRamp.size() - 1);
  const auto below = std::min(static_cast<size_t>(at), kRamp.size() - 2);
  const double part = at - static_cast<double>(below);
  const auto mix = [part](uint8_t a, uint8_t b) { return static_cast<uint8_t>(std::lround(a + (b - a) * part)); };
  const Rgb &a = kRamp[below], &b = kRamp[below + 1];
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

// An indexed bitmap (BITMAPINFOHEADER), its first row at the bottom, as layers are.
std::string Bitmap(size_t columns, size_t rows, const std::function<uint8_t(size_t, size_t)>& level) {
  std::string out = "BM";
  const auto put = [&out](uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(static_cast<uint8_t>(value >> (8 * i))));
  };
  const size_t stride = (columns + 3) / 4 * 4, offset = 14 + 40 + 4 * 256;
  put(offset + stride * rows, 4), put(0, 4), put(offset, 4);
  put(40, 4), put(columns, 4), put(rows, 4), put(1, 2), put(8, 2), put(0, 4);
  put(stride * rows, 4), put(2835, 4), put(2835, 4), put(256, 4), put(0, 4);  // 2835 pixels a metre: 72 an inch.
  for (int i = 0; i < 256; ++i) {
    const Rgb colour = i == kNonfinite ? kNonfiniteColour : i == kAbsentLevel ? kAbsentColour
                                                                              : ColourOf(i / (kLevels - 1.0));
    put(colour.blue, 1), put(colour.green, 1), put(colour.red, 1), put(0, 1);
  }
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < stride; ++column) put(column < columns ? level(column, row) : 0, 1);
  return out;
}

using ValueAt = std::function<float(size_t column, size_t row)>;

// A map's cells, what they span, and which other colours occur.
struct Cells {
  size_t columns = 0, rows = 0;
  ValueAt value;
  ValueAxis axis;
  bool any = false, nonfinite = false, absent = false;

  Cells(size_t the_columns, size_t the_rows, ValueAt the_value)
      : columns(the_columns), rows(the_rows), value(std::move(the_value)) {
    Extent extent;
    for (size_t c = 0; c < columns; ++c)
      for (size_t r = 0; r < rows; ++r) {
        const auto each = static_cast<double>(value(c, r));
        if (model::IsAbsent(each)) absent = true;
        else if (!std::isfinite(each)) nonfinite = true;
        else extent.Add(each);
      }
    any = extent.any;
    axis = ValueAxis(extent, ScaleKind::kByRange);
  }
  uint8_t Level(size_t column, size_t row) const {
    const auto each = static_cast<double>(value(column, row));
    if (model::IsAbsent(each)) return kAbsentLevel;
    if (!std::isfinite(each)) return kNonfinite;
    return static_cast<uint8_t>(std::lround(axis.Share(each) * (kLevels - 1)));
  }
  double height() const { return std::clamp(kRowPixels * static_cast<double>(rows), kHeightMin, kHeightMax); }
};

std::string RowLabels(const Cells& cells) {
  const double height = cells.height(), row_height = height / static_cast<double>(cells.rows);
  std::string out = Format("<svg class=\"y\" width=\"56\" height=\"%.0f\" aria-hidden=\"true\">", height);
  size_t stride = 1;
  while (static_cast<double>(stride) * row_height < kLabelPixels) stride *= 2;
  for (size_t row = 0; row < cells.rows; row += stride)
    out += Format("<text x=\"48\" y=\"%.1f\" text-anchor=\"end\">%zu</text>",
                  height - (static_cast<double>(row) + 0.5) * row_height + 4, row);
  return out + "</svg>";
}

std::string Legend(const Cells& cells) {
  std::string out = "<p class=\"legend\"><span>" + ShortNumber(cells.axis.low()) +
                    "</span><svg class=\"ramp\" width=\"120\" height=\"10\" role=\"img\" aria-label=\"dark is low, "
                    "bright is high\"><rect width=\"120\" height=\"10\" rx=\"2\" fill=\"url(#ramp)\"/></svg><span>" +
                    ShortNumber(cells.axis.high()) + "</span>";
  if (cells.axis.logarithmic())
    out += "<span>logarithmic, half way " + ShortNumber(cells.axis.At(0.5)) + "</span>";
  const auto swatch = [&out](const Rgb& colour, const char* word) {
    out += Format("<span><svg class=\"swatch\" width=\"10\" height=\"10\" aria-hidden=\"true\"><rect width=\"10\" "
                  "height=\"10\" fill=\"#%02x%02x%02x\"/></svg> %s</span>",
                  colour.red, colour.green, colour.blue, word);
  };
  if (cells.nonfinite) swatch(kNonfiniteColour, "not finite");
  if (cells.absent) swatch(kAbsentColour, "not measured");
  return out + "</p>";
}

// The figure up to what is below the picture. `data` are more attributes of the figure, `width` one of the picture.
std::string Opening(const MapLook& look, const Cells& cells, const std::string& data, const std::string& width,
                    const std::string& worst) {
  std::string out = "<figure class=\"map\" id=\"" + Html(look.id) + "\" data-row=\"" + Html(look.row) + "\"";
  out += Format(" data-columns=\"%zu\" data-rows=\"%zu\" data-low=\"%.9g\" data-high=\"%.9g\" data-log=\"%d\"",
                cells.columns, cells.rows, cells.axis.low(), cells.axis.high(), cells.axis.logarithmic() ? 1 : 0);
  out += data + "><figcaption><b>" + Html(look.title) + "</b> <span class=\"soft\">" + Html(look.about) +
         "</span><output>worst " + worst + "</output></figcaption><div class=\"frame\">" + RowLabels(cells);
  out += "<div class=\"plot\" tabindex=\"0\" role=\"application\" aria-label=\"" +
         Html(look.title + ": arrow keys read its values") + "\"><img alt=\"\" " + width;
  out += Format("height=\"%.0f\" src=\"data:image/bmp;base64,", cells.height());
  return out + Base64(Bitmap(cells.columns, cells.rows,
                             [&cells](size_t column, size_t row) { return cells.Level(column, row); })) +
         "\"><i class=\"cursor\"></i></div>";
}

}  // namespace

std::string LayerMapFigure(const MapLook& look, const LayerMap& map, const StepAxis& axis) {
  const Cells cells(map.columns(), map.layers(), [&map](size_t column, size_t row) { return map.At(column, row); });
  if (!cells.any) return "";
  std::string steps = " data-steps=\"";
  for (size_t c = 0; c < map.columns(); ++c) steps += (c == 0 ? "" : " ") + std::to_string(map.first_step(c));
  size_t at = 0, layer = 0;
  for (size_t c = 0; c < map.columns(); ++c)
    for (size_t l = 0; l < map.layers(); ++l)
      if (Precedes(map.worst(), map.At(c, l), map.At(at, layer))) at = c, layer = l;
  std::string out = Opening(look, cells, steps + "\"", "width=\"100%\" ",
                            ShortNumber(static_cast<double>(map.At(at, layer))) + " in " + look.row + " " +
                                std::to_string(layer) + " at step " + std::to_string(map.first_step(at)));
  out += "<svg class=\"x\" width=\"100%\" height=\"20\" aria-hidden=\"true\">";
  for (const model::Step step : axis.TickSteps(kStepTicks)) {
    size_t column = 0;  // The one that holds the step: columns are even in reports, not in steps.
    while (column + 1 < map.columns() && map.first_step(column + 1) <= step) ++column;
    const double share = (static_cast<double>(column) + 0.5) / static_cast<double>(map.columns());
    out += Format("<text x=\"%.1f%%\" y=\"14\" text-anchor=\"%s\">", 100 * share,
                  share < 0.02 ? "start" : share > 0.98 ? "end" : "middle") + StepLabel(step) + "</text>";
  }
  return out + "</svg></div>" + Legend(cells) + "</figure>";
}

std::string HeadMapFigure(const MapLook& look, const HeadMap& map) {
  const Cells cells(map.heads(), map.layers(),
                    [&map](size_t column, size_t row) { return map.At(row, column).value; });
  if (!cells.any) return "";
  struct Head {
    size_t layer, head;
  };
  std::vector<Head> heads;
  std::string steps;
  for (size_t l = 0; l < map.layers(); ++l)
    for (size_t h = 0; h < map.heads(); ++h) {
      if (!model::IsAbsent(static_cast<double>(map.At(l, h).value))) heads.push_back({l, h});
      steps += (steps.empty() ? "" : " ") + std::to_string(map.At(l, h).step);
    }
  const size_t told = std::min(kWorstHeadsTold, heads.size());
  std::partial_sort(heads.begin(), heads.begin() + static_cast<std::ptrdiff_t>(told), heads.end(),
                    [&map](const Head& a, const Head& b) {
                      return Precedes(map.worst(), map.At(a.layer, a.head).value, map.At(b.layer, b.head).value);
                    });
  const auto words = [&map, &heads](size_t i) {
    const HeadMap::Peak& peak = map.At(heads[i].layer, heads[i].head);
    return ShortNumber(static_cast<double>(peak.value)) +
           Format(" in layer %zu, head %zu at step %lld", heads[i].layer, heads[i].head,
                  static_cast<long long>(peak.step));
  };
  const bool with_steps = map.layers() * map.heads() <= kPeakStepsMax;
  std::string out = Opening(look, cells, with_steps ? " data-peaks=\"" + steps + "\"" : " data-peaks=\"\"",
                            Format("width=\"%.0f\" ", kHeadPixels * static_cast<double>(map.heads())), words(0));
  out += "<svg class=\"x\" width=\"100%\" height=\"20\" aria-hidden=\"true\"><text x=\"0\" y=\"14\">head 0 to " +
         std::to_string(map.heads() - 1) + "</text></svg></div>" + Legend(cells);
  for (size_t i = 1; i < told; ++i) out += (i == 1 ? "<p class=\"soft\">Then " : "; ") + words(i);
  return out + (told > 1 ? ".</p></figure>" : "</figure>");
}

std::string RampDefinition() {
  std::string out = "<linearGradient id=\"ramp\">";
  for (size_t i = 0; i < kRamp.size(); ++i)
    out += Format("<stop offset=\"%.3f\" stop-color=\"#%02x%02x%02x\"/>",
                  static_cast<double>(i) / (kRamp.size() - 1), kRamp[i].red, kRamp[i].green, kRamp[i].blue);
  return out + "</linearGradient>";
}

}  // namespace gyrostat::ctl
