#include "ctl/replay_html.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "ctl/chart.h"
#include "ctl/text.h"
#include "model/intervention.h"

namespace gyrostat::ctl {
namespace {

using model::Severity;
using model::Signal;

constexpr char kStyle[] = R"(
:root{--bg:#fbfbf9;--card:#fff;--ink:#1d2129;--soft:#667085;--rule:#e4e4de;--line:#2563a8;--fill:#2563a833;
--info:#3b82c4;--warning:#c98a00;--critical:#c2362b}
@media(prefers-color-scheme:dark){:root{--bg:#14171c;--card:#1b1f26;--ink:#e6e8ec;--soft:#98a2b3;--rule:#2d333d;
--line:#7ab3ef;--fill:#7ab3ef33;--info:#6aaef0;--warning:#e5b23c;--critical:#ef6b5f}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1000px;margin:0 auto;padding:24px 16px 64px}
h1{font-size:24px;margin:0 0 4px}h2{font-size:19px;margin:0;overflow-wrap:anywhere}h3{font-size:14px;margin:20px 0 4px}
p{margin:4px 0}.soft,.label,.legend{color:var(--soft)}
section{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:18px 20px;margin:20px 0}
table{border-collapse:collapse;width:100%;font-size:14px;margin:8px 0}
th{font-weight:600;color:var(--soft)}th,td{text-align:left;padding:5px 10px 5px 0;vertical-align:top;
border-bottom:1px solid var(--rule)}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}a{color:var(--line)}
.tag{display:inline-block;padding:0 8px;border-radius:9px;color:#fff;font-size:12px;line-height:18px}
.tag.info{background:var(--info)}.tag.warning{background:var(--warning)}.tag.critical{background:var(--critical)}
.tag.good{background:#3a8f5c}
svg{display:block;width:100%;height:auto}
.grid{stroke:var(--rule);fill:none}.label{font-size:11px;fill:var(--soft)}
.line{stroke:var(--line);stroke-width:1.2;stroke-linejoin:round;fill:var(--fill)}
.nonfinite{stroke:var(--critical);stroke-width:1.5}.band{opacity:.22}
.band.info{fill:var(--info)}.band.warning{fill:var(--warning)}.band.critical{fill:var(--critical)}
.hot{fill:var(--critical)}.legend{font-size:12px;margin:0}
.ramp{display:inline-block;width:120px;height:10px;border-radius:2px;vertical-align:middle}
@media print{section{break-inside:avoid-page}}
)";

// Viridis at 16 even places (Smith and van der Walt): even to the eye and for the colour-blind.
constexpr std::array<const char*, kShades> kRamp = {
    "#440154", "#481a6c", "#472f7d", "#414487", "#39568c", "#31688e", "#2a788e", "#23888e",
    "#1f988b", "#22a884", "#35b779", "#54c568", "#7ad151", "#a5db36", "#d2e21b", "#fde725"};

std::string ShadeStyle() {
  std::string out, ramp;
  for (size_t i = 0; i < kRamp.size(); ++i) {
    out += ".h" + std::to_string(i) + "{fill:" + kRamp[i] + "}";
    ramp += std::string(",") + kRamp[i];
  }
  return out + ".ramp{background:linear-gradient(90deg" + ramp + ")}";
}

std::string Tag(const std::string& word) { return "<span class=\"tag " + word + "\">" + word + "</span>"; }

// The worst of a run's findings; "good": none above info.
std::string Worst(const Replayed& run) {
  Severity worst = Severity::kInfo;
  for (const RuledFinding& each : run.findings) worst = std::max(worst, each.finding.severity);
  return worst == Severity::kInfo ? "good" : model::Token(worst);
}

size_t CountOf(const Replayed& run, Severity severity) {
  return static_cast<size_t>(std::ranges::count_if(
      run.findings, [severity](const RuledFinding& each) { return each.finding.severity == severity; }));
}

std::string Overview(std::span<const Replayed> runs) {
  std::string out =
      "<div class=\"wide\"><table><tr><th>run</th><th></th><th class=\"n\">steps</th><th class=\"n\">critical</th>"
      "<th class=\"n\">warnings</th><th class=\"n\">info</th></tr>";
  for (size_t i = 0; i < runs.size(); ++i) {
    const Replayed& run = runs[i];
    out += "<tr><td><a href=\"#run" + std::to_string(i) + "\">" + Html(run.run) + "</a></td><td>" + Tag(Worst(run)) +
           "</td><td class=\"n\">" + std::to_string(run.steps) + "</td>";
    for (const Severity each : {Severity::kCritical, Severity::kWarning, Severity::kInfo})
      out += "<td class=\"n\">" + std::to_string(CountOf(run, each)) + "</td>";
    out += "</tr>";
  }
  return out + "</table></div>";
}

std::string PlaceOf(const model::Finding& finding) {
  std::string out(model::SignalName(finding.signal));
  if (finding.layer) out += " layer " + std::to_string(*finding.layer);
  if (finding.head) out += " head " + std::to_string(*finding.head);
  if (finding.rank) out += " rank " + std::to_string(*finding.rank);
  return out;
}

std::string FindingRow(const RuledFinding& each) {
  const model::Finding& finding = each.finding;
  std::string steps = std::to_string(finding.step_begin);
  if (!finding.step_end) steps += " to the end";
  else if (*finding.step_end != finding.step_begin) steps += " to " + std::to_string(*finding.step_end);
  std::string out = "<tr><td>" + Tag(model::Token(finding.severity)) + "</td><td>" + Html(finding.detector);
  if (each.rules != "gyrostat") out += "<br><span class=\"soft\">" + Html(each.rules) + "</span>";
  out += "</td><td>" + Html(PlaceOf(finding)) + "</td><td class=\"n\">" + steps + "</td><td>" + Html(finding.message);
  if (finding.healed && *finding.healed) out += " <span class=\"soft\">Healed.</span>";
  if (finding.recommend) out += " <strong>Recommended: " + std::string(model::Token(*finding.recommend)) + ".</strong>";
  return out + "</td></tr>";
}

std::string Findings(const Replayed& run) {
  if (run.findings.empty()) return "<p>No findings.</p>";
  std::vector<RuledFinding> sorted = run.findings;
  std::ranges::stable_sort(sorted, [](const RuledFinding& a, const RuledFinding& b) {
    return std::pair(b.finding.severity, a.finding.step_begin) < std::pair(a.finding.severity, b.finding.step_begin);
  });
  std::string out =
      "<div class=\"wide\"><table><tr><th></th><th>detector</th><th>where</th><th "
      "class=\"n\">steps</th><th>what</th></tr>";
  for (const RuledFinding& each : sorted) out += FindingRow(each);
  return out + "</table></div>";
}

// What is said about a spike score belongs to the curve that it scores.
Signal Drawn(Signal signal) {
  if (signal == Signal::kSpikeScoreLoss) return Signal::kLoss;
  return signal == Signal::kSpikeScoreGradNorm ? Signal::kGradNorm : signal;
}

std::string Curves(const Replayed& run) {
  std::string out;
  for (const auto& [signal, curve] : run.curves) {
    std::vector<RuledFinding> about;
    for (const RuledFinding& each : run.findings)
      if (Drawn(each.finding.signal) == signal) about.push_back(each);
    const bool array = model::IsArray(signal);
    const std::string name = std::string(model::SignalName(signal)) + (array ? ", the largest" : "");
    out += "<h3>" + Html(name) + "</h3>" + CurveSvg(name, curve, about, run.first_step, run.last_step);
    const auto map = run.layers.find(signal);
    if (map != run.layers.end() && map->second.layers() > 1) {
      const std::string by_layer = std::string(model::SignalName(signal)) + " by layer";
      out += "<h3>" + Html(by_layer) + "</h3>" + LayerMapSvg(by_layer, map->second);
    }
  }
  return out;
}

std::string Facts(const Replayed& run) {
  std::string out = Count(run.steps, "step") + ", " + std::to_string(run.first_step) + " to " +
                    std::to_string(run.last_step);
  if (run.attempts > 1) out += ", " + Count(run.attempts, "attempt");
  if (run.spike_score_loss) out += "; spike score of the loss " + Number(*run.spike_score_loss) + " %";
  if (run.spike_score_grad_norm) out += "; of the gradient norm " + Number(*run.spike_score_grad_norm) + " %";
  return "<p class=\"soft\">" + Html(out) + "<br>" + Html(run.file) + " (" + logs::Token(run.format) + ")</p>";
}

std::string Notes(const Replayed& run) {
  std::string out;
  if (run.losses.skipped_rows > 0)
    out += "<p class=\"soft\">" + Count(run.losses.skipped_rows, "row") + " skipped.</p>";
  for (const std::string& each : run.losses.warnings) out += "<p class=\"soft\">Note: " + Html(each) + ".</p>";
  return out;
}

}  // namespace

std::string HtmlReport(std::span<const Replayed> runs) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<meta name=\"color-scheme\" content=\"light dark\"><title>gyrostat replay</title><style>";
  out += kStyle + ShadeStyle() + "</style></head><body><main><h1>gyrostat replay</h1>";
  out += "<p class=\"soft\">" + Count(runs.size(), "run") +
         ". Marks at the top of a curve are values that are not finite; its bands are findings:";
  for (const char* each : {"critical", "warning", "info"}) out += " " + Tag(each);
  out += "</p>";
  if (runs.size() > 1) out += Overview(runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    out += "<section id=\"run" + std::to_string(i) + "\"><h2>" + Html(runs[i].run) + " ";
    out += Tag(Worst(runs[i])) + "</h2>";
    out += Facts(runs[i]) + Findings(runs[i]) + Curves(runs[i]) + Notes(runs[i]) + "</section>\n";
  }
  return out + "</main></body></html>\n";
}

}  // namespace gyrostat::ctl
