#include "ctl/finding_list.h"

#include <algorithm>
#include <tuple>

#include "ctl/html.h"
#include "ctl/text.h"
#include "model/intervention.h"

namespace gyrostat::ctl {
namespace {

using model::Severity;

constexpr char kOurRules[] = "gyrostat";
constexpr size_t kRowsMax = 400;        // Rules of others can find something at every step.
constexpr size_t kInfoRowsUnfolded = 4;
constexpr double kPinDistance = 0.04;   // Of the width: a pin with its number on a desk, a pin alone on a phone.

std::string Glyph(const char* severity) {
  return Format("<svg class=\"glyph %s\" width=\"18\" height=\"18\" viewBox=\"-9 -9 18 18\" aria-hidden=\"true\"><use "
                "href=\"#pin-%s\"/></svg>", severity, severity);
}

std::string StepLink(const NumberedFinding& each, model::Step step) {
  return "<a class=\"step\" href=\"#" + Html(each.figure) + "\" data-step=\"" + std::to_string(step) + "\">" +
         std::to_string(step) + "</a>";
}

std::string StepsOf(const NumberedFinding& each) {
  const model::Finding& finding = each.ruled->finding;
  std::string out = StepLink(each, finding.step_begin);
  if (!finding.step_end) return out + " to the end";
  return *finding.step_end == finding.step_begin ? out : out + " to " + StepLink(each, *finding.step_end);
}

model::Signal Drawn(const Replayed& run, model::Signal signal) {
  if (signal == model::Signal::kSpikeScoreLoss) signal = model::Signal::kLoss;
  if (signal == model::Signal::kSpikeScoreGradNorm) signal = model::Signal::kGradNorm;
  return run.curves.contains(signal) ? signal : model::Signal::kNone;
}

std::string StateOf(const model::Finding& finding) {
  if (!finding.step_end) return "open";
  return finding.healed ? (*finding.healed ? "healed" : "not healed") : "over";
}

// Where in the run: a bar across the column.
std::string Bar(const model::Finding& finding, const StepAxis& steps) {
  const double from = 100 * steps.Share(finding.step_begin);
  const double to = 100 * steps.Share(finding.step_end.value_or(steps.last()));
  return Format("<svg class=\"bar %s\" width=\"100%%\" height=\"8\" aria-hidden=\"true\"><rect class=\"rail\" y=\"3\" "
                "width=\"100%%\" height=\"2\"/><rect x=\"%.2f%%\" width=\"%.2f%%\" height=\"8\" rx=\"2\"/></svg>",
                model::Token(finding.severity), std::min(from, 98.5), std::max(to - from, 1.5));
}

std::string Row(const NumberedFinding& each, const StepAxis& steps) {
  const model::Finding& finding = each.ruled->finding;
  const char* severity = model::Token(finding.severity);
  std::string out = "<tr id=\"" + Html(each.anchor) + "\"><td class=\"n\">" + std::to_string(each.number) +
                    "</td><td>" + Glyph(severity) + " <b>" + severity + "</b><br>" + Html(finding.detector);
  if (each.ruled->rules != kOurRules) out += "<br><span class=\"soft\">rules: " + Html(each.ruled->rules) + "</span>";
  out += "</td><td>" + Html(PlaceOf(finding)) + "</td><td class=\"when\">" + StepsOf(each) + "<br>" +
         Bar(finding, steps) + "<span class=\"soft\">" + StateOf(finding) + "</span></td><td>" +
         Html(finding.message);
  if (finding.recommend) out += " <b>Recommended: " + std::string(model::Token(*finding.recommend)) + ".</b>";
  return out + "</td></tr>";
}

std::string Rows(std::span<const NumberedFinding> findings, const StepAxis& steps) {
  std::string out = "<table class=\"findings\"><thead><tr><th class=\"n\">#</th><th>finding</th><th>where</th>"
                    "<th>steps</th><th>what</th></tr></thead><tbody>";
  for (const NumberedFinding& each : findings) out += Row(each, steps);
  return out + "</tbody></table>";
}

std::string Pin(std::span<const NumberedFinding* const> together, const StepAxis& steps) {
  const NumberedFinding* worst = *std::ranges::min_element(together, {}, &NumberedFinding::number);
  const model::Finding& finding = worst->ruled->finding;
  const double x = 100 * steps.Share(together.front()->ruled->finding.step_begin);
  std::string words = Format("Finding %zu, %s, step %lld: ", worst->number, model::Token(finding.severity),
                             static_cast<long long>(finding.step_begin)) + finding.detector + ", " + PlaceOf(finding);
  if (together.size() > 1) words += Format("; and %zu more here", together.size() - 1);
  std::string out = "<a class=\"pin " + std::string(model::Token(finding.severity)) + "\" href=\"#" +
                    Html(worst->anchor) + "\" aria-label=\"" + Html(words) + "\"><title>" + Html(words) + "</title>";
  out += Format("<use href=\"#pin-%s\" x=\"%.2f%%\" y=\"12\"/><text x=\"%.2f%%\" dx=\"10\" y=\"16\">%zu",
                model::Token(finding.severity), x, x, worst->number);
  return out + (together.size() > 1 ? "+" : "") + "</text></a>";
}

}  // namespace

std::string PlaceOf(const model::Finding& finding) {
  std::string out(model::SignalName(finding.signal));
  const auto add = [&out](const char* word, const std::optional<uint32_t>& number) {
    if (number) out += (out.empty() ? "" : ", ") + std::string(word) + " " + std::to_string(*number);
  };
  add("layer", finding.layer);
  add("head", finding.head);
  add("rank", finding.rank);
  return out;
}

std::string FigureId(const std::string& section, model::Signal signal) {
  return section + "-" + std::string(model::SignalName(signal));
}

std::vector<NumberedFinding> NumberedFindings(const Replayed& run, const std::string& section) {
  std::vector<NumberedFinding> all;
  for (const RuledFinding& each : run.findings) all.emplace_back().ruled = &each;
  std::ranges::stable_sort(all, [](const NumberedFinding& a, const NumberedFinding& b) {
    const bool ours_a = a.ruled->rules == kOurRules, ours_b = b.ruled->rules == kOurRules;
    const model::Finding &left = a.ruled->finding, &right = b.ruled->finding;
    return std::tuple(!ours_a, right.severity, left.step_begin) < std::tuple(!ours_b, left.severity, right.step_begin);
  });
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].number = i + 1;
    if (i < kRowsMax) all[i].anchor = section + "-f" + std::to_string(i + 1);
    all[i].drawn = Drawn(run, all[i].ruled->finding.signal);
    const bool own = all[i].drawn != model::Signal::kNone;
    if (own || run.curves.contains(model::Signal::kLoss))
      all[i].figure = FigureId(section, own ? all[i].drawn : model::Signal::kLoss);
  }
  return all;
}

std::string FindingRows(std::span<const NumberedFinding> findings, const StepAxis& steps) {
  if (findings.empty()) return "<p>No findings.</p>";
  const auto shown = findings.first(std::min(findings.size(), kRowsMax));
  std::vector<NumberedFinding> above, info;
  for (const NumberedFinding& each : shown)
    (each.ruled->finding.severity == Severity::kInfo ? info : above).push_back(each);
  std::string out;
  if (info.size() <= kInfoRowsUnfolded) {
    out = Rows(shown, steps);
  } else {
    if (!above.empty()) out = Rows(above, steps);
    out += "<details><summary>" + std::to_string(info.size()) + " for information</summary>" + Rows(info, steps) +
           "</details>";
  }
  if (findings.size() > shown.size())
    out += "<p class=\"soft\">And " + Count(findings.size() - shown.size(), "finding") +
           " more, the least of them: replay --json has them all.</p>";
  return out;
}

std::string PinLane(std::span<const NumberedFinding> findings, const StepAxis& steps) {
  std::vector<const NumberedFinding*> sorted;
  for (const NumberedFinding& each : findings)
    if (!each.anchor.empty()) sorted.push_back(&each);
  std::ranges::stable_sort(sorted, {}, [](const NumberedFinding* each) { return each->ruled->finding.step_begin; });
  std::string out = "<svg class=\"lane\" width=\"100%\" height=\"24\">";
  for (size_t begin = 0; begin < sorted.size();) {
    size_t end = begin + 1;
    const double from = steps.Share(sorted[begin]->ruled->finding.step_begin);
    while (end < sorted.size() && steps.Share(sorted[end]->ruled->finding.step_begin) < from + kPinDistance) ++end;
    out += Pin(std::span(sorted).subspan(begin, end - begin), steps);
    begin = end;
  }
  return out + "</svg>";
}

std::string PinDefinitions() {
  return "<path id=\"pin-critical\" d=\"M-8 0L0 -8L8 0L0 8Z\"/><path id=\"pin-warning\" d=\"M0 -8L8.5 7H-8.5Z\"/>"
         "<circle id=\"pin-info\" r=\"6.5\"/>";
}

}  // namespace gyrostat::ctl
