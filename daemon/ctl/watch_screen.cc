#include "ctl/watch_screen.h"

#include <algorithm>
#include <vector>

#include "ctl/json.h"
#include "ctl/render.h"

namespace gyrostat::ctl {
namespace {

constexpr size_t kHistory = 120;  // More than any sparkline shows.
constexpr size_t kLabelColumns = 14, kValueColumns = 12;

const v1::ScalarValue* Find(const v1::RunView& view, std::string_view signal) {
  for (const v1::ScalarValue& each : view.scalars())
    if (each.signal() == signal) return &each;
  return nullptr;
}

void Push(double value, std::deque<double>* history) {
  history->push_back(value);
  if (history->size() > kHistory) history->pop_front();
}

std::string Padded(std::string text, size_t columns) {
  const size_t width = Columns(text);
  if (width < columns) text.append(columns - width, ' ');
  return text;
}

// Lines of a section within a budget; the last one says how many did not fit.
void Section(const std::vector<std::string>& lines, size_t budget, std::vector<std::string>* out) {
  const bool all = lines.size() <= budget;
  const size_t shown = all ? lines.size() : budget > 0 ? budget - 1 : 0;
  out->insert(out->end(), lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(shown));
  if (!all && budget > 0) out->push_back("  " + std::to_string(lines.size() - shown) + " more");
}

}  // namespace

void WatchScreen::Add(const v1::RunView& view) {
  const bool fresh = !seen_ || view.summary().step() != view_.summary().step();
  view_ = view;
  seen_ = true;
  if (!fresh) return;
  if (const auto* loss = Find(view, "loss")) Push(loss->value(), &loss_);
  if (const auto* norm = Find(view, "grad_norm")) Push(norm->value(), &grad_norm_);
  if (!view.worst_heads().empty()) Push(static_cast<double>(view.worst_heads(0).value()), &logit_);
}

std::string WatchScreen::Signal(const Style& style, std::string_view name, std::string_view key,
                                const History& history) const {
  const v1::ScalarValue* now = Find(view_, key);
  const std::string value = now == nullptr ? "-" : Number(now->value());
  const std::vector<double> values(history.begin(), history.end());
  const size_t left = kLabelColumns + kValueColumns + 2;
  const size_t spark = style.columns > left + 8 ? std::min<size_t>(style.columns - left, 60) : 40;
  const size_t skip = values.size() > spark ? values.size() - spark : 0;
  return Padded(std::string(name), kLabelColumns) + Padded(value, kValueColumns) +
         Sparkline(style, std::span<const double>(values).subspan(skip), spark);
}

std::string WatchScreen::Heads(const Style& style) const {
  std::string out = Padded("worst heads", kLabelColumns);
  if (view_.worst_heads().empty()) return out + "no attention maxima reported";
  for (const v1::HeadMax& each : view_.worst_heads()) {
    const std::string part = "L" + std::to_string(each.layer()) + "H" + std::to_string(each.head()) + " " +
                             Number(static_cast<double>(each.value())) + "  ";
    if (style.columns > 0 && Columns(out) + Columns(part) > style.columns) break;
    out += part;
  }
  return out;
}

std::string WatchScreen::Render(const Style& style, size_t rows, int64_t now_unix_ms, std::string_view trouble) const {
  const v1::RunSummary& run = view_.summary();
  struct Row {
    std::string text;
    Tint tint = Tint::kNone;
  };
  std::vector<Row> page;
  const auto add = [&](std::string text, Tint tint = Tint::kNone) {
    page.push_back({Cut(style, text, style.columns), tint});
  };
  add(Escape(run.run()) + "  " + Escape(run.state()) + "  mode " + Token(run.mode()) + "  step " +
          std::to_string(run.step()) + "  last report " + Ago(now_unix_ms, run.last_report_at_ms()), Tint::kBold);
  add("");
  add(Signal(style, "loss", "loss", loss_));
  add(Signal(style, "grad norm", "grad_norm", grad_norm_));
  const auto* rate = Find(view_, "learning_rate");
  const auto* loss_score = Find(view_, "spike_score_loss");
  const auto* norm_score = Find(view_, "spike_score_grad_norm");
  add(Padded("learning rate", kLabelColumns) + Padded(rate ? Number(rate->value()) : "-", kValueColumns) +
      "spike score  loss " + (loss_score ? Number(loss_score->value()) + " %" : "-") + "  grad norm " +
      (norm_score ? Number(norm_score->value()) + " %" : "-"));
  const std::vector<double> logits(logit_.begin(), logit_.end());
  const size_t skip = logits.size() > 40 ? logits.size() - 40 : 0;
  add(Padded("max logit", kLabelColumns) +
      Padded(logits.empty() ? "-" : Number(logits.back()), kValueColumns) +
      Sparkline(style, std::span<const double>(logits).subspan(skip), 40));
  add(Padded("over tau", kLabelColumns) + std::to_string(view_.heads_over_tau()) + " heads over " + Number(view_.tau()),
      view_.heads_over_tau() > 0 ? Tint::kBad : Tint::kNone);
  add(Heads(style));
  add("");

  std::vector<std::string> findings, interventions;
  for (const v1::Finding& each : view_.open_findings())
    findings.push_back("  " + Padded(Escape(each.severity()), 10) + Escape(each.detector()) + "  " + Place(each) +
                       "  since step " + std::to_string(each.step_begin()) + "  " + Escape(each.message()));
  for (const v1::Intervention& each : view_.pending_interventions())
    interventions.push_back("  " + Escape(each.id()) + "  " + Token(each.kind()) + "  " + Escape(each.state()) +
                            "  orders " + std::to_string(each.orders_applied()) + "/" + std::to_string(each.orders()) +
                            "  " + Escape(each.reason()));
  // Headings, the last line and the page above are fixed; findings and interventions share the rest.
  const size_t fixed = page.size() + 4;
  const size_t left = rows > fixed ? rows - fixed : 2;
  const size_t for_findings =
      std::min(findings.size(), std::max(left / 2, left - std::min(left, interventions.size())));
  std::vector<std::string> lines;
  lines.push_back("open findings: " + std::to_string(findings.size()));
  Section(findings, for_findings, &lines);
  lines.push_back("");
  lines.push_back("open interventions: " + std::to_string(interventions.size()));
  Section(interventions, left - for_findings, &lines);
  for (std::string& each : lines) add(std::move(each));
  if (!trouble.empty()) add(Escape(trouble), Tint::kBad);
  else add("Ctrl-C ends; gyrostatctl show " + Escape(run.run()) + " tells more", Tint::kDim);
  std::string out;
  for (size_t i = 0; i < page.size() && i < rows; ++i) out += Paint(style, page[i].tint, page[i].text) + "\n";
  return out;
}

}  // namespace gyrostat::ctl
