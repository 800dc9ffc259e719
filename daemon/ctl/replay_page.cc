#include "ctl/replay_page.h"

#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ctl/render.h"
#include "model/intervention.h"

namespace gyrostat::ctl {
namespace {

using Value = nlohmann::ordered_json;

constexpr size_t kCurveColumns = 48;

Value Real(double value) {
  if (model::IsAbsent(value)) return nullptr;
  return std::isfinite(value) ? Value(value) : Value(Number(value));
}

template <class T>
Value OrNull(const std::optional<T>& value) {
  return value ? Value(*value) : Value(nullptr);
}

Value FindingValue(const RuledFinding& ruled) {
  const model::Finding& finding = ruled.finding;
  Value out;
  out["rules"] = ruled.rules;
  out["detector"] = finding.detector;
  out["severity"] = model::Token(finding.severity);
  out["signal"] = finding.signal == model::Signal::kNone ? Value(nullptr) : Value(model::SignalName(finding.signal));
  out["layer"] = OrNull(finding.layer);
  out["head"] = OrNull(finding.head);
  out["rank"] = OrNull(finding.rank);
  out["step_begin"] = finding.step_begin;
  out["step_detected"] = finding.step_detected;
  out["step_end"] = OrNull(finding.step_end);
  out["healed"] = OrNull(finding.healed);
  out["value"] = Real(finding.value);
  out["expected"] = Real(finding.expected);
  out["message"] = finding.message;
  out["recommend"] = finding.recommend ? Value(model::Token(*finding.recommend)) : Value(nullptr);
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

std::string SignalTable(const Replayed& run, const Style& style) {
  Table table({{"signal"}, {"first", true}, {"last", true}, {"lowest", true}, {"highest", true}, {"curve"}});
  for (const auto& [signal, curve] : run.curves) {
    double low = INFINITY, high = -INFINITY;
    uint64_t nonfinite = 0;
    for (const Curve::Bucket& each : curve.buckets()) {
      low = std::min(low, each.low);
      high = std::max(high, each.high);
      nonfinite += each.nonfinite;
    }
    const bool any = low <= high;
    table.Row({{std::string(model::SignalName(signal))},
               {Number(curve.first_value())},
               {Number(curve.last_value())},
               {any ? Number(low) : "-"},
               {any ? Number(high) : "-"},
               {Sparkline(style, curve.Highs(), kCurveColumns)}},
              nonfinite == 0 ? "" : Count(nonfinite, "value") + " not finite (x)");
  }
  return table.Render(style);
}

std::string FindingTable(const Replayed& run, const Style& style) {
  bool other_rules = false;
  for (const RuledFinding& each : run.findings) other_rules = other_rules || each.rules != "gyrostat";
  Table table({{"severity"}, {"detector"}, {"signal"}, {"place"}, {"steps"}, {"state"}});
  for (const RuledFinding& each : run.findings) {
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

std::string RenderReplayed(const Replayed& run, const Style& style) {
  std::string out = Paint(style, Tint::kBold, Escape(run.run));
  out += "  " + Count(run.steps, "step") + ", " + std::to_string(run.first_step) + " to " +
         std::to_string(run.last_step) + ", " + logs::Token(run.format);
  if (run.attempts > 1) out += ", " + Count(run.attempts, "attempt");
  out += run.file == run.run ? "\n" : "  " + Paint(style, Tint::kDim, Escape(run.file)) + "\n";
  out += SignalTable(run, style);
  if (run.spike_score_loss) out += "spike score of the loss " + Number(*run.spike_score_loss) + " %\n";
  if (run.spike_score_grad_norm)
    out += "spike score of the gradient norm " + Number(*run.spike_score_grad_norm) + " %\n";
  out += "\n";
  out += run.findings.empty() ? "No findings.\n" : FindingTable(run, style);
  if (run.losses.skipped_rows > 0) out += "\n" + Count(run.losses.skipped_rows, "row") + " skipped.\n";
  for (const std::string& each : run.losses.warnings) out += Wrap(style, "Note: " + each + ".", 0);
  return out;
}

}  // namespace gyrostat::ctl
