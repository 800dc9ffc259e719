#include "ctl/replay_html.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "ctl/assets.h"
#include "ctl/axis.h"
#include "ctl/chart.h"
#include "ctl/finding_list.h"
#include "ctl/heat_map.h"
#include "ctl/html.h"
#include "ctl/signal_words.h"
#include "ctl/text.h"
#include "model/intervention.h"

namespace gyrostat::ctl {
namespace {

using model::Severity;
using model::Signal;

constexpr int kTall = 220, kMiddle = 160, kSmall = 120;
constexpr size_t kRunsOpen = 4;  // Of more runs only those with something wrong are unfolded.

std::string Tag(const std::string& word) { return "<span class=\"tag " + word + "\">" + word + "</span>"; }

// The worst of a run's findings; "ok": none above info.
std::string Standing(const Replayed& run) {
  Severity worst = Severity::kInfo;
  for (const RuledFinding& each : run.findings) worst = std::max(worst, each.finding.severity);
  return worst == Severity::kInfo ? "ok" : model::Token(worst);
}

size_t CountOf(const Replayed& run, Severity severity) {
  return static_cast<size_t>(std::ranges::count_if(
      run.findings, [severity](const RuledFinding& each) { return each.finding.severity == severity; }));
}

// A run as the parts of its section need it.
struct Told {
  const Replayed& run;
  std::string id;  // Begins the ids of its section.
  StepAxis steps;
  std::vector<NumberedFinding> findings;

  Told(const Replayed& the_run, size_t index)
      : run(the_run), id("r" + std::to_string(index)), steps(run.first_step, run.last_step),
        findings(NumberedFindings(run, id)) {}
};

std::string Overview(std::span<const Told> runs) {
  std::string out = "<section><table class=\"runs\"><thead><tr><th>run</th><th></th><th>loss</th><th class=\"n\">steps"
                    "</th><th class=\"n\">critical</th><th class=\"n\">warning</th><th class=\"n\">info</th></tr>"
                    "</thead><tbody>";
  for (const Told& told : runs) {
    const Replayed& run = told.run;
    out += "<tr><td><a href=\"#" + told.id + "\">" + Html(run.run) + "</a></td><td>" + Tag(Standing(run)) + "</td><td>";
    const auto loss = run.curves.find(Signal::kLoss);
    if (loss != run.curves.end()) out += CurveGlyph(loss->second, told.steps);
    out += "</td><td class=\"n\">" + std::to_string(run.steps) + "</td>";
    for (const Severity each : {Severity::kCritical, Severity::kWarning, Severity::kInfo})
      out += "<td class=\"n\">" + std::to_string(CountOf(run, each)) + "</td>";
    out += "</tr>";
  }
  return out + "</tbody></table></section>";
}

// What the findings come down to: the worst one, what came before it, whether it is over.
std::string Verdict(const Told& told) {
  std::vector<NumberedFinding> serious;
  for (const NumberedFinding& each : told.findings)
    if (each.ruled->finding.severity > Severity::kInfo) serious.push_back(each);
  std::string out = "<div class=\"verdict " + Standing(told.run) + "\">";
  if (serious.empty()) {
    const size_t info = told.findings.size();
    return out + "<p class=\"headline\">No alarm.</p><p>" +
           (info == 0 ? "There are no findings." : Html(Count(info, "finding") + ", for information only.")) +
           "</p></div>";
  }
  const model::Finding& worst = serious.front().ruled->finding;
  const model::Finding& first = std::ranges::min_element(serious, {}, [](const NumberedFinding& each) {
                                  return each.ruled->finding.step_begin;
                                })->ruled->finding;
  out += "<p class=\"headline\">" + Html(worst.message) + "</p><dl>";
  const auto line = [&out](const char* name, const std::string& text) {
    out += "<div><dt>" + std::string(name) + "</dt><dd>" + Html(text) + "</dd></div>";
  };
  line("Where first", PlaceOf(first) + ", step " + std::to_string(first.step_begin) + " (" + first.detector + ")");
  if (first.step_begin < worst.step_begin) line("Worst since", "step " + std::to_string(worst.step_begin));
  const bool open = std::ranges::any_of(serious, [](const NumberedFinding& each) {
    return !each.ruled->finding.step_end;
  });
  line("Now", open ? "open when the log ends" : "over");
  if (worst.recommend) line("What now", model::Token(*worst.recommend));
  return out + "</dl></div>";
}

std::string Facts(const Replayed& run) {
  std::string out = "<dl class=\"facts\">";
  const auto fact = [&out](const char* name, const std::string& value) {
    out += "<div><dt>" + std::string(name) + "</dt><dd>" + Html(value) + "</dd></div>";
  };
  fact("steps", std::to_string(run.steps) + ", " + std::to_string(run.first_step) + " to " +
                    std::to_string(run.last_step));
  if (run.attempts > 1) fact("attempts", std::to_string(run.attempts));
  const auto loss = run.curves.find(Signal::kLoss);
  if (loss != run.curves.end())
    fact("loss, first to last", ShortNumber(loss->second.first_value()) + " to " +
                                    ShortNumber(loss->second.last_value()));
  if (run.spike_score_loss) fact("spike score of the loss", ShortNumber(*run.spike_score_loss) + " %");
  if (run.spike_score_grad_norm)
    fact("spike score of the gradient norm", ShortNumber(*run.spike_score_grad_norm) + " %");
  std::string spec = run.spec.preset;
  const auto add = [&spec](const std::string& part) { spec += (spec.empty() ? "" : ", ") + part; };
  if (run.spec.layers > 0) add(Count(run.spec.layers, "layer"));
  if (run.spec.heads > 1) add(Count(run.spec.heads, "head"));
  const std::string placement = model::Token(run.spec.norm_placement);
  if (!placement.empty()) add(placement + " norm");
  if (!spec.empty()) fact("model", spec);
  fact("log", run.file + " (" + logs::Token(run.format) + ")");
  return out + "</dl>";
}

std::string SignalFigures(const Told& told, Signal signal, int height) {
  const Curve& curve = told.run.curves.at(signal);
  const SignalWords& words = WordsOf(signal);
  const std::string name(model::SignalName(signal));
  std::vector<NumberedFinding> bands, pins;
  for (const NumberedFinding& each : told.findings) {
    const bool about = each.drawn == signal;
    if (about) bands.push_back(each);
    // The loss is what everyone looks at: all that went wrong is marked there.
    if (about || (signal == Signal::kLoss && each.ruled->finding.severity > Severity::kInfo)) pins.push_back(each);
  }
  const bool array = model::IsArray(signal);
  const std::string worst = WorstOf(signal) == Worst::kHighest ? "highest" : "lowest";
  CurveLook look{FigureId(told.id, signal), name, std::string(words.words), words.scale, height};
  const auto heads = told.run.heads.find(signal);
  const bool with_heads = heads != told.run.heads.end();
  if (array) look.about += (look.about.empty() ? "" : ", ") + worst + " of all " + (with_heads ? "heads" : "layers");
  std::string out = "<div class=\"signal\">" + CurveFigure(look, curve, told.steps, bands, pins);
  const std::string row = signal == Signal::kHiddenMs || signal == Signal::kHiddenAbsmax ? "boundary" : "layer";
  const auto map = told.run.layers.find(signal);
  if (map != told.run.layers.end() && map->second.layers() > 1)
    out += LayerMapFigure({look.id + "-by-layer", name + " by " + row, with_heads ? worst + " head of each layer" : "",
                           row}, map->second, told.steps);
  if (with_heads)
    out += HeadMapFigure({look.id + "-by-head", name + " by head", worst + " of the whole run", row}, heads->second);
  return out + "</div>";
}

constexpr std::array kFirst = {Signal::kLoss, Signal::kGradNorm};

std::string FirstFigures(const Told& told) {
  std::string out;
  for (const Signal each : kFirst)
    if (told.run.curves.contains(each)) out += SignalFigures(told, each, each == Signal::kLoss ? kTall : kMiddle);
  return out;
}

std::string OtherFigures(const Told& told) {
  std::string out;
  for (const auto& [signal, curve] : told.run.curves)
    if (std::ranges::find(kFirst, signal) == kFirst.end()) out += SignalFigures(told, signal, kSmall);
  return out.empty() ? "" : "<h3>Other signals</h3><div class=\"pair\">" + out + "</div>";
}

std::string Notes(const Replayed& run) {
  std::string out;
  if (run.losses.skipped_rows > 0)
    out += "<p class=\"soft\">" + Count(run.losses.skipped_rows, "row") + " of the log skipped.</p>";
  for (const std::string& each : run.losses.warnings) out += "<p class=\"soft\">Note: " + Html(each) + ".</p>";
  return out;
}

// One card an episode: what is read first, and mostly alone.
std::string EpisodeCards(const Replayed& run) {
  std::string out;
  for (const diagnose::Diagnosis& each : run.episodes) {
    out += std::string("<article class=\"episode verdict ") + model::Token(each.severity) +
           "\"><p class=\"headline\">" + Html(each.headline) + "</p><dl>";
    const auto line = [&out](const char* name, const std::string& html) {
      if (!html.empty()) out += "<div><dt>" + std::string(name) + "</dt><dd>" + html + "</dd></div>";
    };
    line("What now", Html(each.advice));
    line("This model", Html(each.likely));
    std::string evidence;
    for (const std::string& sentence : each.evidence) evidence += "<li>" + Html(sentence) + "</li>";
    line("Evidence", "<ul class=\"evidence\">" + evidence + "</ul>");
    line("Else", Html(each.LessLikely()));
    out += "</dl></article>";
  }
  return out;
}

std::string Section(const Told& told, bool folded) {
  std::string out = "<section class=\"run\" id=\"" + told.id + "\">";
  const std::string heading = "<h2>" + Html(told.run.run) + " " + Tag(Standing(told.run)) + "</h2>";
  out += folded ? "<details><summary>" + heading + "</summary>" : heading;
  out += told.run.episodes.empty() ? Verdict(told) : EpisodeCards(told.run);
  out += Facts(told.run) + FirstFigures(told) + "<h3>Findings</h3>" + FindingRows(told.findings, told.steps) +
         OtherFigures(told) + Notes(told.run);
  return out + (folded ? "</details></section>\n" : "</section>\n");
}

std::string Head(const std::string& title) {
  // Nothing may be fetched from anywhere, and no script may run but the page's own.
  const std::string policy = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; style-src '" +
                             std::string(kReportCss.csp_hash) + "'; script-src '" +
                             std::string(kReportJs.csp_hash) + "'";
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"" + policy + "\">"
         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
         "<meta name=\"color-scheme\" content=\"light dark\"><meta name=\"referrer\" content=\"no-referrer\">"
         "<link rel=\"icon\" href=\"data:,\"><title>" + Html(title) + "</title><style>" +
         std::string(kReportCss.bytes) + "</style></head>";
}

}  // namespace

std::string HtmlReport(std::span<const Replayed> runs) {
  std::vector<Told> all;
  all.reserve(runs.size());
  size_t wrong = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    all.emplace_back(runs[i], i);
    if (Standing(runs[i]) != "ok") ++wrong;
  }
  const std::string title = runs.size() == 1 ? runs[0].run : Count(runs.size(), "run");
  std::string out = Head("gyrostat: " + title);
  out += "<body><svg width=\"0\" height=\"0\" class=\"definitions\" aria-hidden=\"true\"><defs>" + PinDefinitions() +
         RampDefinition() + "</defs></svg><main><header><p class=\"soft\">gyrostat replay</p>";
  if (runs.size() != 1)
    out += "<h1>" + Count(runs.size(), "run") + ", " + (wrong == 0 ? "none" : std::to_string(wrong)) +
           " with alarms</h1>";
  out += "</header>";
  if (runs.size() > 1) out += Overview(all);
  for (const Told& told : all)
    out += Section(told, runs.size() > kRunsOpen && Standing(told.run) == "ok");
  return out + "</main><script>" + std::string(kReportJs.bytes) + "</script></body></html>\n";
}

}  // namespace gyrostat::ctl
