#include "ctl/render.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ctl/episode_page.h"

namespace gyrostat::ctl {
namespace {

constexpr size_t kSparkColumns = 60;
constexpr double kFactorPerOrder = 0.1;  // One order takes at most a factor of ten (protocol.md §1.4).

Tint TintOfMode(v1::Mode mode) { return mode == v1::ACT ? Tint::kBold : Tint::kNone; }

Tint TintOfOutcome(const std::string& outcome) {
  if (outcome == "effective") return Tint::kGood;
  return outcome == "harmful" ? Tint::kBad : outcome == "ineffective" ? Tint::kWarn : Tint::kNone;
}

std::string StepRange(const v1::Finding& finding) {
  const std::string begin = std::to_string(finding.step_begin());
  return finding.has_step_end() ? begin + "-" + std::to_string(finding.step_end()) : begin + "-";
}

std::string StateOf(const v1::Finding& finding) {
  if (!finding.has_step_end()) return "open";
  return finding.has_healed() && !finding.healed() ? "not healed" : "healed";
}

void Line(const Style& style, const std::string& name, const std::string& value, std::string* out) {
  const std::string padded = name + std::string(name.size() < 16 ? 16 - name.size() : 1, ' ');
  *out += Paint(style, Tint::kDim, padded) + Escape(value) + "\n";
}

void Heading(const Style& style, const std::string& text, std::string* out) {
  *out += "\n" + Paint(style, Tint::kBold, text) + "\n";
}

void Append(const std::string& part, std::string* sentence) {
  if (part.empty()) return;
  if (!sentence->empty()) *sentence += ", ";
  *sentence += part;
}

std::string ModelSentence(const v1::ModelSpec& spec) {
  std::string out;
  Append(spec.preset(), &out);
  if (spec.has_layers()) Append(Count(spec.layers(), "layer"), &out);
  if (spec.has_hidden_size()) Append("width " + std::to_string(spec.hidden_size()), &out);
  if (spec.has_heads()) {
    const bool grouped = spec.has_kv_heads() && spec.kv_heads() != spec.heads();
    Append(Count(spec.heads(), "head") + (grouped ? " on " + Count(spec.kv_heads(), "key head") : ""), &out);
  }
  if (spec.has_head_dim()) Append("head dim " + std::to_string(spec.head_dim()), &out);
  Append(spec.attention(), &out);
  if (spec.has_norm_placement()) Append(spec.norm_placement() + " " + spec.norm_kind(), &out);
  else Append(spec.norm_kind(), &out);
  if (spec.norm_gain() == "unit_offset") Append("gain 1 + w", &out);
  if (spec.has_qk_norm() && spec.qk_norm() != "none") Append("qk_norm " + spec.qk_norm(), &out);
  Append(spec.compute_dtype(), &out);
  Append(spec.optimizer(), &out);
  return out.empty() ? "not declared" : out;
}

std::string AttentionSentence(const v1::AttnLogitInfo& info) {
  std::string out = Token(info.kind());
  if (out.empty()) return "not measured";
  if (info.scaled()) out += ", scaled";
  if (info.masked()) out += ", masked";
  if (info.with_bias()) out += ", with bias";
  if (info.pre_cap()) out += ", before soft-cap";
  return out;
}

std::string AllowSentence(const v1::RunView& view) {
  std::string out;
  for (const std::string& kind : view.allow()) Append(kind, &out);
  return out.empty() ? "nothing: the job lets no one change it" : out;
}

std::string Heads(const v1::RunView& view, const Style& style) {
  std::string out;
  std::vector<double> layers;
  for (const float each : view.layer_attn_logit_max()) layers.push_back(static_cast<double>(each));
  if (layers.empty()) return out;
  Heading(style, "Attention logits", &out);
  Line(style, "by layer", Sparkline(style, layers, kSparkColumns) + "  0.." + std::to_string(layers.size() - 1), &out);
  Line(style, "over tau", Count(view.heads_over_tau(), "head") + " over " + Number(view.tau()), &out);
  Table table({{"layer", true}, {"head", true}, {"max", true}});
  for (const v1::HeadMax& each : view.worst_heads()) {
    const auto value = static_cast<double>(each.value());
    table.Row({{std::to_string(each.layer())}, {std::to_string(each.head())},
               {Number(value), value > view.tau() ? Tint::kBad : Tint::kNone}});
  }
  return out + table.Render(style);
}

}  // namespace

int SeverityRank(const std::string& severity) { return severity == "critical" ? 2 : severity == "warning" ? 1 : 0; }

Tint TintOfSeverity(const std::string& severity) {
  constexpr Tint kTints[] = {Tint::kNone, Tint::kWarn, Tint::kBad};
  return kTints[SeverityRank(severity)];
}

Tint TintOfState(const std::string& state) {
  return state == "live" ? Tint::kGood : state == "silent" ? Tint::kWarn : Tint::kDim;
}

std::string Place(const v1::Finding& finding) {
  std::string out;
  if (finding.has_layer()) out += "layer " + std::to_string(finding.layer());
  if (finding.has_head()) out += (out.empty() ? "head " : " head ") + std::to_string(finding.head());
  if (finding.has_rank()) out += (out.empty() ? "rank " : " rank ") + std::to_string(finding.rank());
  return out;
}

std::string RenderRuns(const v1::ListRunsResponse& runs, const Style& style, int64_t now_unix_ms) {
  if (runs.runs().empty()) return "No run has reported to this daemon yet.\n";
  Table table({{"RUN"}, {"STATE"}, {"MODE"}, {"STEP", true}, {"RANKS", true}, {"LAST REPORT"},
               {"FINDINGS", true}, {"PENDING", true}, {"ATTEMPTS", true}});
  for (const v1::RunSummary& run : runs.runs())
    table.Row(
        {{run.run(), Tint::kBold},
         {run.state(), TintOfState(run.state())},
         {Token(run.mode()), TintOfMode(run.mode())},
         {std::to_string(run.step())},
         {std::to_string(run.ranks())},
         {Ago(now_unix_ms, run.last_report_at_ms())},
         {std::to_string(run.findings_open()), run.findings_open() > 0 ? Tint::kWarn : Tint::kNone},
         {std::to_string(run.interventions_pending()), run.interventions_pending() > 0 ? Tint::kWarn : Tint::kNone},
         {std::to_string(run.attempts())}});
  return table.Render(style);
}

std::string RenderFindings(const Findings& findings, const Style& style) {
  if (findings.empty()) return "No findings.\n";
  Table table({{"ID", true}, {"SEVERITY"}, {"DETECTOR"}, {"SIGNAL"}, {"WHERE"}, {"STEPS"}, {"VALUE", true},
               {"EXPECTED", true}, {"STATE"}});
  for (const v1::Finding& each : findings)
    table.Row({{std::to_string(each.id())}, {each.severity(), TintOfSeverity(each.severity())},
               {each.detector(), Tint::kBold}, {each.signal()}, {Place(each)}, {StepRange(each)},
               {Number(each.value())}, {Number(each.expected())}, {StateOf(each)}},
              each.message());
  return table.Render(style);
}

std::string RenderEpisodes(const EpisodeList& episodes, const Style& style) {
  std::string out;
  for (const v1::Episode& each : episodes) {
    out += (out.empty() ? "" : "\n") + Paint(style, Tint::kDim, "episode " + std::to_string(each.id())) + "\n";
    out += RenderEpisode(each.severity(), each.page(), style);
  }
  return out.empty() ? "No episodes.\n" : out;
}

std::string RenderInterventions(const Interventions& interventions, const Style& style) {
  if (interventions.empty()) return "No interventions.\n";
  Table table({{"ID"}, {"KIND"}, {"STATE"}, {"OUTCOME"}, {"MODE"}, {"AUTHOR"}, {"PROPOSED", true}, {"APPLIED", true},
               {"ORDERS", true}, {"HEADS", true}, {"DELAY", true}});
  for (const v1::Intervention& each : interventions)
    table.Row({{each.id(), Tint::kBold}, {Token(each.kind())},
               {each.state(), each.state() == "proposed" ? Tint::kWarn : Tint::kNone},
               {each.outcome(), TintOfOutcome(each.outcome())}, {Token(each.mode())}, {each.author()},
               {std::to_string(each.step_proposed())},
               {each.has_step_applied() ? std::to_string(each.step_applied()) : "-"},
               {std::to_string(each.orders_applied()) + "/" + std::to_string(each.orders())},
               {std::to_string(each.heads())},
               {each.has_median_delay_boundaries() ? Number(each.median_delay_boundaries()) : "-"}},
              each.reason());
  return table.Render(style);
}

std::string RenderView(const v1::RunView& view, const Style& style, int64_t now_unix_ms) {
  const v1::RunSummary& run = view.summary();
  std::string out;
  Line(style, "run", run.run(), &out);
  Line(style, "state", run.state() + ", last report " + Ago(now_unix_ms, run.last_report_at_ms()), &out);
  Line(style, "mode", Token(run.mode()), &out);
  Line(style, "step", std::to_string(run.step()), &out);
  Line(style, "attempt", AttemptHex(run.attempt()) + " (of " + std::to_string(run.attempts()) + ")", &out);
  Line(style, "ranks", std::to_string(run.ranks()), &out);
  Line(style, "model", ModelSentence(view.model()), &out);
  Line(style, "logits", AttentionSentence(view.attn_logit()), &out);
  Line(style, "job allows", AllowSentence(view), &out);
  Line(style, "reports",
       std::to_string(view.reports_total()) + ", " + std::to_string(view.reports_dropped_total()) + " dropped", &out);
  if (view.has_episode()) {
    Heading(style, view.episode().closed() ? "Last episode" : "Episode", &out);
    out += RenderEpisode(view.episode().severity(), view.episode().page(), style);
  }
  if (!view.scalars().empty()) {
    Heading(style, "Newest signals", &out);
    for (const v1::ScalarValue& each : view.scalars()) Line(style, each.signal(), Number(each.value()), &out);
  }
  out += Heads(view, style);
  Heading(style, "Open findings", &out);
  out += RenderFindings(view.open_findings(), style);
  Heading(style, "Open interventions", &out);
  out += RenderInterventions(view.open_interventions(), style);
  if (view.recent_decisions().empty()) return out;
  Heading(style, "Recent decisions", &out);
  Table table({{"STEP", true}, {"KIND"}, {"ACTED"}});
  for (const v1::Decision& each : view.recent_decisions())
    table.Row({{std::to_string(each.step())}, {Token(each.kind())}, {each.acted() ? "yes" : "no"}}, each.reason());
  return out + table.Render(style);
}

std::string RenderSeriesSummary(const std::string& name, std::span<const SeriesPoint> points, const Style& style) {
  if (points.empty()) return "No values of " + Escape(name) + " in these steps.\n";
  std::vector<double> values, finite;
  for (const SeriesPoint& point : points) {
    values.push_back(point.value);
    if (std::isfinite(point.value)) finite.push_back(point.value);
  }
  std::string out;
  Line(style, "signal", name, &out);
  Line(style, "steps", std::to_string(points.front().step) + ".." + std::to_string(points.back().step) + ", " +
                           std::to_string(points.size()) + " values, " +
                           std::to_string(values.size() - finite.size()) + " not finite", &out);
  if (!finite.empty()) {
    const auto middle = finite.begin() + static_cast<std::ptrdiff_t>(finite.size() / 2);
    std::nth_element(finite.begin(), middle, finite.end());
    const double median = *middle;
    const auto [low, high] = std::minmax_element(finite.begin(), finite.end());
    Line(style, "range", Number(*low) + " .. " + Number(*high) + ", median " + Number(median), &out);
  }
  Line(style, "last", Number(points.back().value), &out);
  Line(style, "shape", Sparkline(style, values, kSparkColumns), &out);
  return out;
}

std::string RenderQkClip(double tau, const std::string& variant, std::span<const ClippedHead> heads,
                         const Style& style) {
  const bool mla = !heads.empty() && heads.front().q_rope.has_value();
  std::vector<Table::Column> columns = {{"HEAD", true}, {"MAX", true}, {"GAMMA", true}, {"W_Q", true}, {"W_K", true}};
  if (variant == "layer_gain") columns[3].name = "Q_GAIN", columns[4].name = "K_GAIN";
  if (mla) columns.push_back({"W_Q_ROPE", true});
  Table table(std::move(columns));
  for (const ClippedHead& each : heads) {
    std::string note;
    if (!std::isfinite(each.max)) note = "Not finite: never clipped; look at the nonfinite findings.";
    if (each.gamma < kFactorPerOrder) note = "One order takes at most a factor of ten: a daemon needs several.";
    for (const auto& [rows, factor] : each.rows)
      if (factor < 1) note += (note.empty() ? "" : "; ") + rows + " times " + Number(factor);
    std::vector<Cell> cells = {{std::to_string(each.head)},
                               {Number(each.max), each.gamma < 1 ? Tint::kBad : Tint::kNone},
                               {Number(each.gamma)}, {Number(each.q)}, {Number(each.k)}};
    if (mla) cells.push_back({Number(each.q_rope.value_or(1))});
    table.Row(std::move(cells), note);
  }
  return "tau " + Number(tau) + ", variant " + variant + "\n" + table.Render(style);
}

std::string RenderDeepNorm(const std::string& arch, std::span<const DeepNormStack> stacks, const Style& style) {
  Table table({{"STACK"}, {"ALPHA", true}, {"BETA", true}, {"BUDGET", true}});
  for (const DeepNormStack& each : stacks)
    table.Row({{each.name}, {Number(each.alpha)}, {Number(each.beta)}, {Number(each.budget)}});
  return "DeepNorm, " + arch + ": x = LN(alpha x + G(x)); beta scales W_v, W_o, W_1, W_2 and a gate's W_3\n" +
         table.Render(style);
}

std::string RenderWarmup(uint64_t at, uint64_t to, std::span<const WarmupStep> steps, const Style& style) {
  Table table({{"STEP", true}, {"BASE", true}, {"RATE", true}, {"SHARE", true}});
  for (const WarmupStep& each : steps)
    table.Row({{std::to_string(each.step)}, {Number(each.base)}, {Number(each.rate)},
               {Number(each.base > 0 ? each.rate / each.base : 1)}});
  return "from step " + std::to_string(at) + " on, warm-up until step " + std::to_string(to) + "\n" +
         table.Render(style);
}

}  // namespace gyrostat::ctl
