#include "ctl/watch_screen.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "ctl/head_grid.h"
#include "ctl/json.h"
#include "ctl/render.h"

namespace gyrostat::ctl {
namespace {

constexpr size_t kLabelColumns = 14, kValueColumns = 12;
constexpr size_t kSparkColumns = 100;
constexpr size_t kMapRowsFew = 7;        // Of words and blocks; below that other rows give way.
constexpr size_t kWaitingRowsMax = 4;

const v1::ScalarValue* Find(const v1::RunView& view, std::string_view signal) {
  for (const v1::ScalarValue& each : view.scalars())
    if (each.signal() == signal) return &each;
  return nullptr;
}

void Push(double value, std::deque<double>* history) {
  history->push_back(value);
  if (history->size() > kWatchedPoints) history->pop_front();
}

std::string Padded(std::string text, size_t columns) {
  const size_t width = Columns(text);
  if (width < columns) text.append(columns - width, ' ');
  return text;
}

std::string NameOf(const v1::HeadMax& head) {
  return "L" + std::to_string(head.layer()) + "H" + std::to_string(head.head());
}

bool Waits(const v1::Intervention& each) { return each.state() == "proposed"; }

// A budget that parts take from in order of their weight.
struct Budget {
  size_t left;
  size_t Take(size_t wanted) {
    const size_t taken = std::min(wanted, left);
    left -= taken;
    return taken;
  }
};

// Rows of a section within a budget; the last one says how many did not fit.
template <class Row>
void Append(const std::vector<Row>& rows, size_t budget, std::vector<Row>* out) {
  const bool all = rows.size() <= budget;
  const size_t shown = all ? rows.size() : budget > 0 ? budget - 1 : 0;
  out->insert(out->end(), rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(shown));
  if (!all && budget > 0) out->push_back({"  " + std::to_string(rows.size() - shown) + " more"});
}

}  // namespace

WatchScreen::WatchScreen(std::string command) : command_(std::move(command)) {
  for (const std::string_view each : kWatchedSignals) past_[std::string(each)];
}

void WatchScreen::AddPast(std::string_view signal, double value) {
  if (const auto found = past_.find(signal); found != past_.end()) Push(value, &found->second);
}

void WatchScreen::Add(const v1::RunView& view) {
  const bool fresh = !seen_ || view.summary().step() != view_.summary().step();
  view_ = view;
  seen_ = true;
  if (!view.head_attn_logit_max().empty()) {
    heads_.assign(view.head_attn_logit_max().begin(), view.head_attn_logit_max().end());
    layers_ = view.model().layers() > 0 ? view.model().layers() : 1;
  }
  if (!fresh) return;
  for (const std::string_view each : kWatchedSignals)
    if (const auto* now = Find(view, each)) AddPast(each, now->value());
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
  const size_t spark = style.columns > left + 8 ? std::min(style.columns - left, kSparkColumns) : 40;
  const size_t skip = values.size() > spark ? values.size() - spark : 0;
  return Padded(std::string(name), kLabelColumns) + Padded(value + " ", kValueColumns) +
         Sparkline(style, std::span<const double>(values).subspan(skip), spark);
}

WatchScreen::Row WatchScreen::LogitRow(const Style& style) const {
  const std::string over = Count(view_.heads_over_tau(), "head") + " over " + Number(view_.tau());
  Style narrow = style;  // The curve leaves room for what is said behind it.
  if (style.columns > Columns(over) + 2) narrow.columns = style.columns - Columns(over) - 2;
  const std::string logit = logit_.empty() ? "-" : Number(logit_.back());
  return {Curve(narrow, "max logit", logit, logit_) + "  " + over,
          view_.heads_over_tau() > 0 ? Tint::kBad : Tint::kNone};
}

std::vector<WatchScreen::Row> WatchScreen::Signals(const Style& style, int64_t now_unix_ms) const {
  const v1::RunSummary& run = view_.summary();
  const auto percent = [&](std::string_view signal) {
    const auto* score = Find(view_, signal);
    return score == nullptr ? std::string("-") : Number(score->value()) + " %";
  };
  const auto curve = [&](std::string_view name, std::string_view signal, const std::string& value) {
    return Row{Curve(style, name, value, past_.find(signal)->second)};
  };
  return {
      {Escape(run.run()) + "  " + Escape(run.state()) + "  mode " + Token(run.mode()) + "  step " +
           std::to_string(run.step()) + "  last report " + Ago(now_unix_ms, run.last_report_at_ms()),
       Tint::kBold},
      curve("loss", "loss", Shown("loss")),
      curve("grad norm", "grad_norm", Shown("grad_norm")),
      curve("learning rate", "learning_rate", Shown("learning_rate")),
      curve("spikes, loss", "spike_score_loss", percent("spike_score_loss")),
      curve("spikes, norm", "spike_score_grad_norm", percent("spike_score_grad_norm")),
      LogitRow(style),
  };
}

// What happens, why, and what now: as long as it is news.
std::vector<WatchScreen::Row> WatchScreen::Episode() const {
  if (!view_.has_episode() || view_.episode().closed()) return {};
  const v1::Episode& episode = view_.episode();
  std::string why = "  ";
  if (!episode.causes().empty()) {
    const v1::Cause& cause = episode.causes(0);
    why += "likely " + Escape(cause.cause()) + " (" + std::to_string(std::lround(cause.weight() * 100)) + " %), ";
  }
  why += "since step " + std::to_string(episode.step_begin()) + ", " + Count(episode.findings(), "finding");
  if (episode.has_step_end()) why += ", calm since step " + std::to_string(episode.step_end());
  std::vector<Row> rows = {{Escape(episode.headline()), TintOfSeverity(episode.severity())}, {why}};
  if (!episode.advice().empty()) rows.push_back({"  " + Escape(episode.advice())});
  return rows;
}

// The words come first: they must not be cut off by a long reason.
std::vector<WatchScreen::Row> WatchScreen::Waiting() const {
  std::vector<Row> rows;
  for (const v1::Intervention& each : view_.open_interventions())
    if (Waits(each))
      rows.push_back({"  " + command_ + " approve " + Escape(each.id()) + "   " + Token(each.kind()) + ": " +
                          Escape(each.reason()),
                      Tint::kWarn});
  if (!rows.empty()) rows.insert(rows.begin(), {"waits for you (or reject ID --reason WHY):", Tint::kWarn});
  return rows;
}

std::vector<WatchScreen::Row> WatchScreen::Interventions() const {
  std::vector<Row> rows;
  for (const v1::Intervention& each : view_.open_interventions())
    if (!Waits(each))
      rows.push_back({"  " + Escape(each.id()) + "  " + Token(each.kind()) + "  " + Escape(each.state()) + "  orders " +
                      std::to_string(each.orders_applied()) + "/" + std::to_string(each.orders()) + "  " +
                      Escape(each.reason())});
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

// Where heads were never told one by one, the worst of them stand for the map.
std::string WatchScreen::Heads(const Style& style) const {
  std::string out = Padded("worst heads", kLabelColumns);
  if (view_.worst_heads().empty()) return out + "no attention maxima reported";
  std::string between;
  for (const v1::HeadMax& each : view_.worst_heads()) {
    const std::string part = between + NameOf(each) + " " + Number(static_cast<double>(each.value()));
    if (style.columns > 0 && Columns(out) + Columns(part) > style.columns) break;
    out += part;
    between = "  ";
  }
  return out;
}

size_t WatchScreen::MapRowsWanted() const {
  const size_t grid = GridRowsWanted({layers_, heads_, view_.tau()});
  return grid > 0 ? grid : 1;
}

std::vector<WatchScreen::Row> WatchScreen::Map(const Style& style, size_t rows) const {
  std::vector<Row> out;
  for (std::string& each : DrawGrid(style, {layers_, heads_, view_.tau()}, rows))
    out.push_back({std::move(each), Tint::kNone, true});
  if (out.empty() && rows > 0) out.push_back({Heads(style)});
  return out;
}

std::string WatchScreen::Render(const Style& style, size_t rows, int64_t now_unix_ms, std::string_view trouble,
                                std::string_view keys) const {
  std::vector<Row> page = Signals(style, now_unix_ms);
  const std::vector<Row> episode = Episode(), waiting = Waiting(), others = Interventions(), findings = Findings();
  const size_t headings = 2;  // Of findings and other interventions, told in all windows.
  Budget budget{rows > page.size() + 1 + headings ? rows - page.size() - 1 - headings : 0};
  const size_t for_episode = budget.Take(episode.size());
  const size_t for_waiting = budget.Take(std::min(waiting.size(), kWaitingRowsMax));
  size_t for_map = budget.Take(std::min(MapRowsWanted(), kMapRowsFew));
  const size_t for_others = budget.Take(std::min<size_t>(others.size(), 3));
  const size_t for_findings = budget.Take(std::min<size_t>(findings.size(), 3));
  for_map += budget.Take(MapRowsWanted() - std::min(MapRowsWanted(), for_map));
  const size_t more_waiting = budget.Take(waiting.size() - for_waiting);
  const size_t more_others = budget.Take(others.size() - for_others);
  const size_t more_findings = budget.Take(findings.size() - for_findings);
  Append(episode, for_episode, &page);
  Append(waiting, for_waiting + more_waiting, &page);
  page.push_back({"interventions under way: " + std::to_string(others.size())});
  Append(others, for_others + more_others, &page);
  page.push_back({"open findings: " + std::to_string(findings.size())});
  Append(findings, for_findings + more_findings, &page);
  const std::vector<Row> map = Map(style, for_map);
  page.insert(page.end(), map.begin(), map.end());
  if (page.size() + 1 > rows) page.resize(rows > 0 ? rows - 1 : 0);
  if (!trouble.empty()) page.push_back({Escape(trouble), Tint::kBad});
  else page.push_back({std::string(keys) + command_ + " show " + Escape(view_.summary().run()) + " tells more",
                       Tint::kDim});
  std::string out;
  for (size_t i = 0; i < page.size() && i < rows; ++i) {
    const Row& row = page[i];
    out += (row.drawn ? row.text : Paint(style, row.tint, Cut(style, row.text, style.columns))) + "\n";
  }
  return out;
}

std::string WatchScreen::Line(int64_t now_unix_ms) const {
  const v1::RunSummary& run = view_.summary();
  std::string out = Rfc3339(now_unix_ms) + "  " + Escape(run.run()) + "  " + Escape(run.state()) + "  mode " +
                    Token(run.mode()) + "  step " + std::to_string(run.step()) + "  loss " + Shown("loss") +
                    "  grad norm " + Shown("grad_norm") + "  learning rate " + Shown("learning_rate");
  if (!view_.worst_heads().empty())
    out += "  max logit " + Number(static_cast<double>(view_.worst_heads(0).value())) + " (" +
           NameOf(view_.worst_heads(0)) + ", " + Count(view_.heads_over_tau(), "head") + " over " +
           Number(view_.tau()) + ")";
  out += "  " + Count(static_cast<uint64_t>(view_.open_findings_size()), "open finding");
  for (const v1::Intervention& each : view_.open_interventions())
    if (Waits(each)) out += "  waits: " + command_ + " approve " + Escape(each.id());
  if (view_.has_episode() && !view_.episode().closed()) out += "  " + Escape(view_.episode().headline());
  return out;
}

}  // namespace gyrostat::ctl
