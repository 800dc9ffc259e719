#include "ctl/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "ctl/text.h"
#include "model/signal.h"

namespace gyrostat::ctl {
namespace {

constexpr double kWidth = 900, kHeight = 200, kLeft = 64, kRight = 12, kTop = 12, kBottom = 24;
constexpr double kLogFromRatio = 30;
constexpr int kGridLines = 4, kStepLabels = 5;
constexpr double kBandMin = 2;  // Pixels: a spike of one step is still seen.

[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...) {
  std::array<char, 512> raw;
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(raw.data(), raw.size(), format, arguments);
  va_end(arguments);
  return {raw.data(), std::min(static_cast<size_t>(std::max(length, 0)), raw.size() - 1)};
}

// Values to pixels.
struct Scale {
  double low = 0, high = 1;
  bool log = false;

  double Share(double value) const {
    if (log) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
    return (value / 2 - low / 2) / (high / 2 - low / 2);  // Halves: the range of two huge values is finite.
  }
  double At(double share) const {
    if (log) return std::exp(std::log(low) + share * (std::log(high) - std::log(low)));
    return low + share * (high / 2 - low / 2) * 2;
  }
  double Y(double value) const { return kHeight - kBottom - Share(value) * (kHeight - kTop - kBottom); }
};

Scale ScaleOf(double low, double high) {
  Scale scale;
  if (!(low <= high)) return scale;
  scale.log = low > 0 && high / low > kLogFromRatio;
  scale.low = low;
  scale.high = high;
  if (low == high) {
    const double pad = low == 0 ? 1 : std::abs(low) * 0.1;
    scale.low = low - pad;
    scale.high = high + pad;
    scale.log = false;
  }
  return scale;
}

struct StepScale {
  model::Step first = 0, last = 1;
  double X(model::Step step) const {
    const double span = std::max(static_cast<double>(last) - static_cast<double>(first), 1.0);
    const double share = (static_cast<double>(step) - static_cast<double>(first)) / span;
    return kLeft + std::clamp(share, 0.0, 1.0) * (kWidth - kLeft - kRight);
  }
};

std::string Short(double value) { return Html(Format("%.4g", value)); }

std::string Axes(const Scale& scale, const StepScale& steps) {
  std::string out;
  for (int i = 0; i <= kGridLines; ++i) {
    const double value = scale.At(static_cast<double>(i) / kGridLines), y = scale.Y(value);
    out += Format("<path class=\"grid\" d=\"M%.0f %.1fH%.0f\"/><text class=\"label\" x=\"%.0f\" y=\"%.1f\" "
                  "text-anchor=\"end\">", kLeft, y, kWidth - kRight, kLeft - 6, y + 4);
    out += Short(value) + "</text>";
  }
  for (int i = 0; i <= kStepLabels; ++i) {
    const double span = static_cast<double>(steps.last) - static_cast<double>(steps.first);
    const auto step = static_cast<model::Step>(static_cast<double>(steps.first) + span * i / kStepLabels);
    out += Format("<text class=\"label\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"%s\">%lld</text>", steps.X(step),
                  kHeight - 6, i == 0 ? "start" : i == kStepLabels ? "end" : "middle", static_cast<long long>(step));
  }
  return out;
}

std::string Bands(std::span<const RuledFinding> findings, const StepScale& steps) {
  std::string out;
  for (const RuledFinding& each : findings) {
    const model::Finding& finding = each.finding;
    const double from = steps.X(finding.step_begin);
    const double to = std::max(steps.X(finding.step_end.value_or(steps.last)), from + kBandMin);
    out += Format("<rect class=\"band %s\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%.0f\"><title>",
                  model::Token(finding.severity), from, kTop, to - from, kHeight - kTop - kBottom);
    out += Html(each.rules + "/" + finding.detector + ": " + finding.message) + "</title></rect>";
  }
  return out;
}

// The highest values forward, the lowest back: one closed shape per attempt.
std::string Area(std::span<const Curve::Bucket> buckets, const Scale& scale, const StepScale& steps) {
  std::string out;
  for (size_t begin = 0; begin < buckets.size();) {
    std::string there, back;
    size_t end = begin;
    for (; end < buckets.size() && (end == begin || buckets[end].first > buckets[end - 1].first); ++end) {
      const Curve::Bucket& each = buckets[end];
      if (each.low > each.high) break;
      const double x = steps.X(each.first);
      there += Format("%s%.1f %.1f", there.empty() ? "M" : "L", x, scale.Y(each.high));
      back = Format("L%.1f %.1f", x, scale.Y(each.low)) + back;
    }
    if (!there.empty()) out += "<path class=\"line\" d=\"" + there + back + "Z\"/>";
    begin = std::max(end, begin + 1);
  }
  return out;
}

std::string NonfiniteMarks(std::span<const Curve::Bucket> buckets, const StepScale& steps) {
  std::string path;
  for (const Curve::Bucket& each : buckets)
    if (each.nonfinite > 0) path += Format("M%.1f %.0fv8", steps.X(each.first), kTop);
  if (path.empty()) return "";
  return "<path class=\"nonfinite\" d=\"" + path + "\"><title>not finite</title></path>";
}

std::string Open(std::string_view name, double height) {
  return Format("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", kWidth, height) + Html(name) + "\">";
}

}  // namespace

std::string Html(std::string_view text) {
  std::string out;
  for (const char c : Escape(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out.push_back(c);
    }
  }
  return out;
}

std::string CurveSvg(std::string_view name, const Curve& curve, std::span<const RuledFinding> findings,
                     model::Step first_step, model::Step last_step) {
  double low = INFINITY, high = -INFINITY;
  for (const Curve::Bucket& each : curve.buckets()) {
    low = std::min(low, each.low);
    high = std::max(high, each.high);
  }
  const Scale scale = ScaleOf(low, high);
  const StepScale steps{first_step, last_step};
  return Open(name, kHeight) + Axes(scale, steps) + Bands(findings, steps) + Area(curve.buckets(), scale, steps) +
         NonfiniteMarks(curve.buckets(), steps) + "</svg>";
}

std::string LayerMapSvg(std::string_view name, const LayerMap& map) {
  double low = INFINITY, high = -INFINITY;
  for (size_t c = 0; c < map.columns(); ++c)
    for (size_t l = 0; l < map.layers(); ++l) {
      const auto value = static_cast<double>(map.At(c, l));
      if (!std::isfinite(value) || model::IsAbsent(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  if (!(low <= high)) return "";
  const Scale scale = ScaleOf(low, high);
  const double cell = std::clamp(160.0 / static_cast<double>(map.layers()), 2.0, 18.0);
  const double height = cell * static_cast<double>(map.layers()), width = kWidth - kLeft - kRight;
  const double column = width / static_cast<double>(map.columns());
  std::array<std::string, kShades + 1> paths;  // The last: not finite.
  for (size_t l = 0; l < map.layers(); ++l) {
    const double y = kTop + height - cell * static_cast<double>(l + 1);
    for (size_t c = 0; c < map.columns(); ++c) {
      const auto value = static_cast<double>(map.At(c, l));
      if (model::IsAbsent(value)) continue;
      const size_t shade = std::isfinite(value)
                               ? static_cast<size_t>(std::clamp(scale.Share(value) * kShades, 0.0, kShades - 1.0))
                               : size_t{kShades};
      paths[shade] += Format("M%.1f %.1fh%.1fv%.1fh-%.1fz", kLeft + column * static_cast<double>(c), y, column + 0.1,
                             cell, column + 0.1);
    }
  }
  std::string out = Open(name, kTop + height + kBottom);
  for (size_t shade = 0; shade < paths.size(); ++shade)
    if (!paths[shade].empty())
      out += (shade == kShades ? std::string("<path class=\"hot\" d=\"") : Format("<path class=\"h%zu\" d=\"", shade)) +
             paths[shade] + "\"/>";
  out += Format("<text class=\"label\" x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">layer 0</text>", kLeft - 6,
                kTop + height - 2);
  out += Format("<text class=\"label\" x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%zu</text>", kLeft - 6, kTop + 10,
                map.layers() - 1);
  out += Format("<text class=\"label\" x=\"%.0f\" y=\"%.1f\">%lld</text>", kLeft, kTop + height + 16,
                static_cast<long long>(map.first_step(0)));
  out += Format("<text class=\"label\" x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%lld</text></svg>", kWidth - kRight,
                kTop + height + 16, static_cast<long long>(map.first_step(map.columns() - 1)));
  return out + "<p class=\"legend\">" + Short(scale.low) + " <span class=\"ramp\"></span> " + Short(scale.high) +
         (scale.log ? ", logarithmic" : "") + "</p>";
}

}  // namespace gyrostat::ctl
