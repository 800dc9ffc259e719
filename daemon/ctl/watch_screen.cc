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

}  // namespace

// Rows of a section within a budget; the last one says how many did not fit.
void WatchScreen::Section(const std::vector<Row>& rows, size_t budget, std::vector<Row>* out) {
  const bool all = rows.size() <= budget;
  const size_t shown = all ? rows.size() : budget > 0 ? budget - 1 : 0;
  out->insert(out->end(), rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(shown));
  if (!all && budget > 0) out->push_back({"  " + std::to_string(rows.size() - shown) + " more"});
}

void WatchScreen::Add(const v1::RunView& view) {
  const bool fresh = !seen_ || view.summary().step() != view_.summary().step();
  view_ = view;
  seen_ = true;
  if (!fresh) return;
  if (const auto* loss = Find(view, "loss")) Push(loss->value(), &loss_);
  if (const auto* norm = Find(view, "grad_norm")) Push(norm->value(), &grad_norm_);
  if (!view.worst_heads().empty()) Push(static_cast<double>(view.worst_heads(0).value()), &logit_);
}

std::string WatchScreen::Shown(std::string_view signal) const {
  const v1::ScalarValue* now = Find(view_, signal);
  return now == nullptr ? "-" : Number(now->value());
}

std::string WatchScreen::Curve(const Style& style, std::string_view name, const std::string& value,
                               const History& history) const {
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
  std::string between;
  for (const v1::HeadMax& each : view_.worst_heads()) {
    const std::string part = between + "L" + std::to_string(each.layer()) + "H" + std::to_string(each.head()) + " " +
                             Number(static_cast<double>(each.value()));
    if (style.columns > 0 && Columns(out) + Columns(part) > style.columns) break;
    out += part;
    between = "  ";
  }
  return out;
}

std::vector<WatchScreen::Row> WatchScreen::Signals(const Style& style, int64_t now_unix_ms) const {
  const v1::RunSummary& run = view_.summary();
  const auto* rate = Find(view_, "learning_rate");
  const auto percent = [&](std::string_view signal) {
    const auto* score = Find(view_, signal);
    return score == nullptr ? std::string("-") : Number(score->value()) + " %";
  };
  const std::string logit = logit_.empty() ? "-" : Number(logit_.back());
  return {
      {Escape(run.run()) + "  " + Escape(run.state()) + "  mode " + Token(run.mode()) + "  step " +
           std::to_string(run.step()) + "  last report " + Ago(now_unix_ms, run.last_report_at_ms()),
       Tint::kBold},
      {""},
      {Curve(style, "loss", Shown("loss"), loss_)},
      {Curve(style, "grad norm", Shown("grad_norm"), grad_norm_)},
      {Padded("learning rate", kLabelColumns) + Padded(rate ? Number(rate->value()) : "-", kValueColumns) +
       "spike score  loss " + percent("spike_score_loss") + "  grad norm " + percent("spike_score_grad_norm")},
      {Curve(style, "max logit", logit, logit_)},
      {Padded("over tau", kLabelColumns) + Count(view_.heads_over_tau(), "head") + " over " + Number(view_.tau()),
       view_.heads_over_tau() > 0 ? Tint::kBad : Tint::kNone},
      {Heads(style)},
      {""},
  };
}

// What happens, and what now: as long as it is news.
std::vector<WatchScreen::Row> WatchScreen::Episode() const {
  if (!view_.has_episode() || view_.episode().closed()) return {};
  const v1::Episode& episode = view_.episode();
  std::vector<Row> rows = {{Escape(episode.headline()), TintOfSeverity(episode.severity())}};
  if (!episode.advice().empty()) rows.push_back({"  " + Escape(episode.advice())});
  return rows;
}

std::vector<WatchScreen::Row> WatchScreen::Findings() const {
  std::vector<const v1::Finding*> worst_first;
  for (const v1::Finding& each : view_.open_findings()) worst_first.push_back(&each);
  std::stable_sort(worst_first.begin(), worst_first.end(), [](const v1::Finding* a, const v1::Finding* b) {
    return SeverityRank(a->severity()) > SeverityRank(b->severity());
  });
  std::vector<Row> rows;
  for (const v1::Finding* each : worst_first)
    rows.push_back({"  " + Padded(Escape(each->severity()), 10) + Padded(Escape(each->detector()), 13) + Place(*each) +
                        (Place(*each).empty() ? "" : "  ") + "since step " + std::to_string(each->step_begin()) + "  " +
                        Escape(each->message()),
                    TintOfSeverity(each->severity())});
  return rows;
}

std::vector<WatchScreen::Row> WatchScreen::Interventions() const {
  std::vector<Row> rows;
  for (const v1::Intervention& each : view_.open_interventions())
    rows.push_back({"  " + Escape(each.id()) + "  " + Token(each.kind()) + "  " + Escape(each.state()) + "  orders " +
                        std::to_string(each.orders_applied()) + "/" + std::to_string(each.orders()) + "  " +
                        Escape(each.reason()),
                    each.state() == "proposed" ? Tint::kWarn : Tint::kNone});
  return rows;
}

std::string WatchScreen::Render(const Style& style, size_t rows, int64_t now_unix_ms, std::string_view trouble) const {
  std::vector<Row> page = Signals(style, now_unix_ms);
  const std::vector<Row> episode = Episode();
  page.insert(page.end(), episode.begin(), episode.end());
  const std::vector<Row> findings = Findings(), interventions = Interventions();
  // Headings, the last line and the page above are fixed; findings and interventions share the rest.
  const size_t fixed = page.size() + 4;
  const size_t left = rows > fixed ? rows - fixed : 2;
  const size_t spare = left - std::min(left, interventions.size());
  const size_t for_findings = std::min(findings.size(), std::max(left / 2, spare));
  page.push_back({"open findings: " + std::to_string(findings.size())});
  Section(findings, for_findings, &page);
  page.push_back({""});
  page.push_back({"open interventions: " + std::to_string(interventions.size())});
  Section(interventions, left - for_findings, &page);
  if (!trouble.empty()) page.push_back({Escape(trouble), Tint::kBad});
  else page.push_back({"Ctrl-C ends; gyrostatctl show " + Escape(view_.summary().run()) + " tells more", Tint::kDim});
  std::string out;
  for (size_t i = 0; i < page.size() && i < rows; ++i)
    out += Paint(style, page[i].tint, Cut(style, page[i].text, style.columns)) + "\n";
  return out;
}

}  // namespace gyrostat::ctl
