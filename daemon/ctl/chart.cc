#include "ctl/chart.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ctl/html.h"
#include "ctl/text.h"

namespace gyrostat::ctl {
namespace {

constexpr double kWidth = 1000;
constexpr double kPad = 6;  // Above the highest value and below the lowest: a line has a width.
constexpr int kStepTicks = 6, kPixelsPerTick = 36, kEmptyHeight = 40;

struct Place {
  const StepAxis& steps;
  const ValueAxis& values;
  double height;
  double X(model::Step step) const { return kWidth * steps.Share(step); }
  double Y(double value) const { return height - kPad - values.Share(value) * (height - 2 * kPad); }
};

std::string ValueLabels(const std::vector<Tick>& ticks, const Place& place) {
  std::string out = Format("<svg class=\"y\" width=\"56\" height=\"%.0f\" aria-hidden=\"true\">", place.height);
  for (const Tick& each : ticks)
    out += Format("<text x=\"48\" y=\"%.1f\" text-anchor=\"end\">",
                  place.height - kPad - each.share * (place.height - 2 * kPad) + 4) + each.label + "</text>";
  return out + "</svg>";
}

std::string StepLabels(const StepAxis& steps) {
  std::string out = "<svg class=\"x\" width=\"100%\" height=\"20\" aria-hidden=\"true\">";
  for (const Tick& each : steps.Ticks(kStepTicks))
    out += Format("<text x=\"%.2f%%\" y=\"14\" text-anchor=\"%s\">", 100 * each.share,
                  each.share < 0.02 ? "start" : each.share > 0.98 ? "end" : "middle") + each.label + "</text>";
  return out + "</svg>";
}

std::string Grid(const std::vector<Tick>& ticks, const Place& place) {
  std::string path;
  for (const Tick& each : ticks)
    path += Format("M0 %.1fH%.0f", place.height - kPad - each.share * (place.height - 2 * kPad), kWidth);
  for (const Tick& each : place.steps.Ticks(kStepTicks))
    path += Format("M%.1f 0V%.0f", kWidth * each.share, place.height);
  return "<path class=\"grid\" d=\"" + path + "\"/>";
}

std::string Bands(std::span<const NumberedFinding> findings, const Place& place) {
  std::string out;
  for (const NumberedFinding& each : findings) {
    if (each.anchor.empty()) continue;
    const model::Finding& finding = each.ruled->finding;
    const model::Step end = finding.step_end.value_or(place.steps.last());
    const double from = place.X(finding.step_begin), to = std::max(place.X(end), from);
    out += Format("<rect class=\"band %s\" data-number=\"%zu\" data-first=\"%lld\" data-last=\"%lld\" x=\"%.1f\" "
                  "width=\"%.1f\" height=\"%.0f\"/>", model::Token(finding.severity), each.number,
                  static_cast<long long>(finding.step_begin), static_cast<long long>(end), from,
                  std::max(to - from, 0.1), place.height);
  }
  return out;
}

// Stretches of finite buckets that run forward: a line where each bucket is one value, else the shape between highest
// and lowest.
std::string Values(std::span<const Curve::Bucket> buckets, const Place& place) {
  std::string out;
  for (size_t begin = 0; begin < buckets.size();) {
    std::string there, back;
    bool single = true;
    size_t end = begin;
    for (; end < buckets.size() && (end == begin || buckets[end].first > buckets[end - 1].first); ++end) {
      const Curve::Bucket& each = buckets[end];
      if (each.low > each.high) break;
      const double x = place.X(each.first + (each.last - each.first) / 2);
      there += Format("%s%.1f %.1f", there.empty() ? "M" : "L", x, place.Y(each.high));
      back = Format("L%.1f %.1f", x, place.Y(each.low)) + back;
      single = single && each.low == each.high;
    }
    if (end - begin == 1) there += "h0.1";  // A point of its own is seen by its round ends.
    if (!there.empty())
      out += single ? "<path class=\"line\" d=\"" + there + "\"/>"
                    : "<path class=\"line area\" d=\"" + there + back + "Z\"/>";
    begin = std::max(end, begin + 1);
  }
  return out;
}

std::string NonfiniteMarks(std::span<const Curve::Bucket> buckets, const Place& place) {
  std::string path;
  for (const Curve::Bucket& each : buckets)
    if (each.nonfinite > 0) path += Format("M%.1f 0v9", place.X(each.first));
  return path.empty() ? "" : "<path class=\"nonfinite\" d=\"" + path + "\"/>";
}

// "first[-last]:[low[/high]][!nonfinite]", blanks between: what the script reads out.
std::string Points(std::span<const Curve::Bucket> buckets) {
  std::string out;
  for (const Curve::Bucket& each : buckets) {
    if (!out.empty()) out += ' ';
    out += std::to_string(each.first);
    if (each.last != each.first) out += "-" + std::to_string(each.last);
    out += ':';
    if (each.low <= each.high) out += Number(each.low);
    if (each.low < each.high) out += "/" + Number(each.high);
    if (each.nonfinite > 0) out += "!" + std::to_string(each.nonfinite);
  }
  return out;
}

// What there is to say without a pointer.
std::string Summary(const Curve& curve) {
  const Curve::Bucket *low = nullptr, *high = nullptr;
  uint64_t nonfinite = 0;
  for (const Curve::Bucket& each : curve.buckets()) {
    nonfinite += each.nonfinite;
    if (each.low > each.high) continue;
    if (low == nullptr || each.low < low->low) low = &each;
    if (high == nullptr || each.high > high->high) high = &each;
  }
  if (low == nullptr) return "no finite value in " + Count(curve.values(), "report");
  std::string out = "lowest " + ShortNumber(low->low) + " at " + std::to_string(low->low_at) + " \u00b7 highest " +
                    ShortNumber(high->high) + " at " + std::to_string(high->high_at) + " \u00b7 last " +
                    ShortNumber(curve.last_value());
  if (nonfinite > 0) out += " \u00b7 " + std::to_string(nonfinite) + " not finite";
  return out;
}

}  // namespace

std::string CurveFigure(const CurveLook& look, const Curve& curve, const StepAxis& steps,
                        std::span<const NumberedFinding> bands, std::span<const NumberedFinding> pins) {
  const Extent extent = ExtentOf(curve);
  const ValueAxis axis = AxisOf(curve, look.scale).Rounded();
  const int height = extent.any ? look.height : std::min(look.height, kEmptyHeight);
  const Place place{steps, axis, static_cast<double>(height)};
  std::vector<Tick> ticks;
  if (extent.any) ticks = axis.Ticks(std::max(2, height / kPixelsPerTick));
  const std::string summary = Summary(curve);
  std::string out = "<figure class=\"chart\" id=\"" + Html(look.id) + "\" data-first=\"" +
                    std::to_string(steps.first()) + "\" data-last=\"" + std::to_string(steps.last()) +
                    "\" data-points=\"" + Points(curve.buckets()) + "\"><figcaption><b>" + Html(look.title) +
                    "</b> <span class=\"soft\">" + Html(look.about);
  if (axis.logarithmic()) out += look.about.empty() ? "log scale" : ", log scale";
  out += "</span><output>" + summary + "</output></figcaption><div class=\"frame\">";
  if (!pins.empty()) out += PinLane(pins, steps);
  out += ValueLabels(ticks, place);
  out += "<div class=\"plot\" tabindex=\"0\" role=\"application\" aria-label=\"" +
         Html(look.title + ", " + summary + ". Arrow keys read single steps.") + "\">";
  out += Format("<svg class=\"values\" viewBox=\"0 0 %.0f %d\" preserveAspectRatio=\"none\" width=\"100%%\" "
                "height=\"%d\" aria-hidden=\"true\">", kWidth, height, height);
  out += Grid(ticks, place) + Bands(bands, place) + Values(curve.buckets(), place) +
         NonfiniteMarks(curve.buckets(), place);
  return out + "</svg><i class=\"cursor\"></i></div>" + StepLabels(steps) + "</div></figure>";
}

std::string CurveGlyph(const Curve& curve, const StepAxis& steps) {
  const ValueAxis axis = AxisOf(curve, ScaleKind::kByRange);
  const Place place{steps, axis, 28};
  return Format("<svg class=\"values small\" viewBox=\"0 0 %.0f 28\" preserveAspectRatio=\"none\" width=\"120\" "
                "height=\"28\" aria-hidden=\"true\">", kWidth) + Values(curve.buckets(), place) +
         NonfiniteMarks(curve.buckets(), place) + "</svg>";
}

}  // namespace gyrostat::ctl
