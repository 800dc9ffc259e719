#include "ctl/replay_page.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ctl/axis.h"
#include "ctl/episode_page.h"
#include "ctl/html.h"
#include "ctl/render.h"
#include "ctl/signal_words.h"
#include "json/values.h"
#include "model/intervention.h"

namespace gyrostat::ctl {
namespace {

using json::OrNull, json::Real, json::Value;

// Of a terminal. Below kWideColumns the first values are left out: the curve shows how it began.
constexpr size_t kCurveColumnsMin = 10, kCurveColumnsMax = 48, kWideColumns = 100;

constexpr std::string_view kOurRules = "gyrostat";

bool IsWide(const Style& style) { return style.columns == 0 || style.columns >= kWideColumns; }

Value FindingValue(const RuledFinding& ruled) {
  Value out;
  out["rules"] = ruled.rules;
  json::PutFinding(ruled.finding, &out);
  return out;
}

std::string PlaceOf(const model::Finding& finding) {
  std::string place;
  const auto add = [&place](const char* name, const std::optional<uint32_t>& number) {
    if (number) place += (place.empty() ? "" : " ") + std::string(name) + " " + std::to_string(*number);
  };
  add("layer", finding.layer);
  add("head", finding.head);
  add("rank", finding.rank);
  return place;
}

std::string Steps(const model::Finding& finding) {
  std::string text = "from " + std::to_string(finding.step_begin);
  if (finding.step_end) text += " to " + std::to_string(*finding.step_end);
  return text;
}

std::string State(const model::Finding& finding) {
  if (!finding.step_end) return "open";
  return finding.healed ? (*finding.healed ? "healed" : "not healed") : "over";
}

// A signal's row but for its curve, whose width depends on all rows.
struct SignalRow {
  const Curve* curve = nullptr;
  ValueAxis axis;
  std::vector<Cell> cells;
  uint64_t nonfinite = 0;
};

// Column by column of the run's steps, so that the curves of all signals lie below each other: the highest value, as
// high as a picture would show it; the last one again where none was measured; 'x' where one was not finite.
std::string CurveText(const SignalRow& row, const StepAxis& steps, size_t width, const Style& style) {
  std::vector<double> highs(width, -INFINITY);
  size_t begin = width, end = 0;
  for (const Curve::Bucket& each : row.curve->buckets()) {
    const size_t at = std::min(static_cast<size_t>(steps.Share(each.first) * static_cast<double>(width)), width - 1);
    const double high = each.nonfinite > 0 ? std::nan("") : row.axis.Share(each.high);
    if (!std::isnan(highs[at])) highs[at] = std::isnan(high) ? high : std::max(highs[at], high);
    begin = std::min(begin, at);
    end = std::max(end, at + 1);
  }
  if (begin >= end) return "";
  for (size_t i = begin + 1; i < end; ++i)
    if (highs[i] == -INFINITY) highs[i] = highs[i - 1];
  const auto seen = std::span<const double>(highs).subspan(begin, end - begin);
  return std::string(begin, ' ') + Sparkline(style, seen, width);
}

SignalRow RowOf(model::Signal signal, const Curve& curve, const Style& style) {
  const Extent extent = ExtentOf(curve);
  const ValueAxis axis = AxisOf(curve, WordsOf(signal).scale);
  SignalRow row{&curve, axis, {}, 0};
  row.cells.push_back({std::string(model::SignalName(signal))});
  if (IsWide(style)) row.cells.push_back({ShortNumber(curve.first_value())});
  row.cells.push_back({ShortNumber(curve.last_value())});
  row.cells.push_back({extent.any ? ShortNumber(extent.low) : "-"});
  row.cells.push_back({extent.any ? ShortNumber(extent.high) : "-"});
  row.cells.push_back({axis.logarithmic() ? "log" : ""});
  for (const Curve::Bucket& each : curve.buckets()) row.nonfinite += each.nonfinite;
  return row;
}

std::string SignalTable(const Replayed& run, const Style& style) {
  std::vector<Table::Column> columns = {{"signal"}};
  if (IsWide(style)) columns.push_back({"first", true});
  for (const char* each : {"last", "lowest", "highest"}) columns.push_back({each, true});
  columns.push_back({""});
  std::vector<SignalRow> rows;
  for (const auto& [signal, curve] : run.curves) rows.push_back(RowOf(signal, curve, style));
  size_t before = 0;  // The curves: they take what is left.
  for (size_t c = 0; c < columns.size(); ++c) {
    size_t widest = columns[c].name.size();
    for (const SignalRow& each : rows) widest = std::max(widest, Columns(each.cells[c].text));
    before += widest + 2;
  }
  const size_t left = style.columns == 0 ? kCurveColumnsMax : style.columns - std::min(style.columns, before);
  columns.push_back({"curve"});
  Table table(std::move(columns));
  std::string nonfinite;
  for (SignalRow& each : rows) {
    if (each.nonfinite > 0)
      nonfinite += (nonfinite.empty() ? "x: not finite, of " : ", ") + each.cells.front().text + " " +
                   Count(each.nonfinite, "value");
    const size_t width = std::clamp(left, kCurveColumnsMin, kCurveColumnsMax);
    each.cells.push_back({CurveText(each, StepAxis(run.first_step, run.last_step), width, style)});
    table.Row(std::move(each.cells));
  }
  return table.Render(style) + Wrap(style, nonfinite.empty() ? "" : nonfinite + ".", 0);
}

std::string EpisodePages(const Replayed& run, const Style& style) {
  std::string out;
  for (const diagnose::Diagnosis& each : run.episodes) {
    out += "\n";
    if (run.episodes.size() > 1)
      out += Paint(style, Tint::kDim, "Episode " + std::to_string(&each - run.episodes.data() + 1) + " of " +
                                          std::to_string(run.episodes.size())) + "\n";
    out += RenderEpisode(model::Token(each.severity), each.Text(), style);
  }
  return out;
}

// "7 findings (1 critical, 4 warning, 2 info)".
std::string FindingCount(const std::vector<RuledFinding>& findings) {
  std::string parts;
  for (const model::Severity each : {model::Severity::kCritical, model::Severity::kWarning, model::Severity::kInfo}) {
    const auto count = std::ranges::count_if(findings, [each](const auto& f) { return f.finding.severity == each; });
    if (count > 0) parts += (parts.empty() ? "" : ", ") + std::to_string(count) + " " + model::Token(each);
  }
  return Count(findings.size(), "finding") + " (" + parts + ")";
}

std::string FindingTable(const std::vector<RuledFinding>& findings, const Style& style) {
  bool other_rules = false;
  for (const RuledFinding& each : findings) other_rules = other_rules || each.rules != kOurRules;
  Table table({{"severity"}, {"detector"}, {"signal"}, {"place"}, {"steps"}, {"state"}});
  for (const RuledFinding& each : findings) {
    const model::Finding& finding = each.finding;
    const std::string severity = model::Token(finding.severity);
    table.Row({{severity, TintOfSeverity(severity)},
               {other_rules ? each.rules + "/" + finding.detector : finding.detector},
               {std::string(model::SignalName(finding.signal))},
               {PlaceOf(finding)},
               {Steps(finding)},
               {State(finding)}},
              finding.message +
                  (finding.recommend ? " Recommended: " + std::string(model::Token(*finding.recommend)) + "." : ""));
  }
  return table.Render(style);
}

std::string FindingText(const Replayed& run, Detail detail, const Style& style) {
  if (run.findings.empty()) return "No findings.\n";
  std::vector<RuledFinding> ours, others;
  for (const RuledFinding& each : run.findings) (each.rules == kOurRules ? ours : others).push_back(each);
  if (detail == Detail::kFindings) return FindingTable(run.findings, style);
  std::string out;
  if (!ours.empty()) {
    out += FindingCount(ours) + (run.episodes.empty() ? ": nothing that anybody need be woken for" : "");
    out += "; --findings lists " + std::string(ours.size() == 1 ? "it" : "them") + ".\n";
  }
  return others.empty() ? out : out + FindingTable(others, style);
}

}  // namespace

std::string Json(const Replayed& run) {
  Value out;
  out["file"] = run.file;
  out["run"] = run.run;
  out["format"] = logs::Token(run.format);
  out["steps"] = run.steps;
  out["first_step"] = run.first_step;
  out["last_step"] = run.last_step;
  out["signals"] = Value::array();
  for (const model::Signal each : run.signals) out["signals"].push_back(model::SignalName(each));
  out["skipped_rows"] = run.losses.skipped_rows;
  out["warnings"] = run.losses.warnings;
  const auto score = [](const std::optional<double>& percent) { return percent ? Real(*percent) : Value(nullptr); };
  out["spike_score"] = {{"loss", score(run.spike_score_loss)}, {"grad_norm", score(run.spike_score_grad_norm)}};
  out["findings"] = Value::array();
  for (const RuledFinding& each : run.findings) out["findings"].push_back(FindingValue(each));
  return out.dump(-1, ' ', false, Value::error_handler_t::replace);
}

std::string RenderReplayed(const Replayed& run, Detail detail, const Style& style) {
  std::string out = Paint(style, Tint::kBold, Escape(run.run));
  out += "  " + Count(run.steps, "step") + ", " + std::to_string(run.first_step) + " to " +
         std::to_string(run.last_step) + ", " + logs::Token(run.format);
  if (run.attempts > 1) out += ", " + Count(run.attempts, "attempt");
  out += run.file == run.run ? "\n" : "  " + Paint(style, Tint::kDim, Escape(run.file)) + "\n";
  out += EpisodePages(run, style);
  if (!run.episodes.empty()) out += "\n";
  out += SignalTable(run, style);
  if (run.spike_score_loss) out += "spike score of the loss " + Number(*run.spike_score_loss) + " %\n";
  if (run.spike_score_grad_norm)
    out += "spike score of the gradient norm " + Number(*run.spike_score_grad_norm) + " %\n";
  out += "\n";
  out += FindingText(run, detail, style);
  if (run.losses.skipped_rows > 0) out += "\n" + Count(run.losses.skipped_rows, "row") + " skipped.\n";
  for (const std::string& each : run.losses.warnings) out += Wrap(style, "Note: " + each + ".", 0);
  return out;
}

}  // namespace gyrostat::ctl
