#include "web/json.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "base/text.h"
#include "json/values.h"
#include "model/signal.h"

namespace gyrostat::web {
namespace {

using json::Dump, json::Real, json::Value;
using model::Signal;

constexpr size_t kFindingsMax = 500, kEpisodesMax = 50, kInterventionsMax = 200;
constexpr Signal kEventArrays[] = {Signal::kAttnLogitMax, Signal::kHiddenMs, Signal::kLayerGradNorm};

Value TextOrNull(std::string_view text) { return text.empty() ? Value(nullptr) : Value(std::string(text)); }

Value Summary(const engine::RunState& run) {
  Value out;
  out["run"] = run.run;
  out["attempt"] = run.attempt.ToHex();
  out["attempts"] = run.attempts;
  out["state"] = engine::Token(run.life);
  out["mode"] = model::Token(run.mode);
  out["step"] = run.step;
  out["ranks"] = run.ranks;
  out["last_report_unix_ms"] = run.last_report_unix_ms;
  out["findings_open"] = run.open_findings.size();
  out["interventions_pending"] = run.interventions_pending;
  return out;
}

Value Scalars(const model::Report& report) {
  Value out = Value::object();
  for (const model::SignalInfo& info : model::Signals())
    if (model::IsScalar(info.signal) && report.Has(info.signal))
      out[std::string(info.name)] = Real(report.Scalar(info.signal));
  for (const auto& [name, value] : report.user) out[name] = Real(value);
  return out;
}

// Of one attempt among the run's.
Value OfAttempt(Value value, const model::AttemptId& attempt) {
  value["attempt"] = attempt.ToHex();
  return value;
}

// The newest `max` of `rows`, oldest first.
template <class Rows, class Convert>
void Newest(const Rows& rows, size_t max, const char* name, Value* out, const Convert& convert) {
  const size_t first = rows.size() - std::min(rows.size(), max);
  Value& list = (*out)[name] = Value::array();
  for (size_t i = first; i < rows.size(); ++i) list.push_back(convert(rows[i]));
  (*out)[std::string(name) + "_left_out"] = first;
}

struct Mix {
  uint64_t state = 0xcbf29ce484222325u;  // FNV-1a: no secret, only "has it changed".
  void operator()(std::string_view text) {
    for (const char c : text) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  void operator()(uint64_t number) {
    for (int i = 0; i < 8; ++i) state = (state ^ ((number >> (8 * i)) & 0xff)) * 0x100000001b3u;
  }
};

// Of everything in RunJson that is no number of the newest report.
std::string Revision(const engine::RunState& run) {
  Mix mix;
  mix(run.attempt.AsBytes());
  mix(static_cast<uint64_t>(run.mode));
  mix(static_cast<uint64_t>(run.life));
  for (const auto* totals : {&run.findings_total, &run.interventions_total, &run.outcomes_total})
    for (const auto& [name, count] : *totals) {
      mix(name);
      mix(count);
    }
  for (const model::Finding& each : run.open_findings) {
    mix(each.id);
    mix(static_cast<uint64_t>(each.severity));
  }
  if (run.episode) {
    mix(run.episode->episode);
    mix(run.episode->findings);
    mix(run.episode->headline);
    mix(run.episode->closed ? 1 : 0);
  }
  for (const model::Intervention& each : run.open_interventions) {
    mix(each.id);
    mix(static_cast<uint64_t>(each.state));
    mix(each.step_applied ? 1 : 0);
    mix(std::bit_width(each.orders));  // Orders may come with every step: each doubling is news enough.
  }
  if (!run.recent_decisions.empty()) mix(run.recent_decisions.back().reason);
  Value text = mix.state;
  return text.dump();
}

// Layers and heads of an array of the report. A boundary array has one row more than the model has layers.
std::pair<size_t, size_t> ShapeOf(const engine::RunState& run, Signal signal, size_t size) {
  const model::SignalInfo* info = model::FindSignal(signal);
  const bool by_head = info != nullptr && (info->shape == model::Shape::kLayerHead ||
                                           (info->shape == model::Shape::kLayerOrLayerHead && size != run.spec.layers));
  if (!by_head) return {size, 1};
  if (run.spec.layers > 0 && size % run.spec.layers == 0) return {run.spec.layers, size / run.spec.layers};
  return {1, size};
}

Value ArrayValue(const engine::RunState& run, const model::Report& report, Signal signal) {
  const std::span<const float> values = report.Array(signal);
  const auto [layers, heads] = ShapeOf(run, signal, values.size());
  return {{"layers", layers}, {"heads", heads}, {"values", Base64(values)}};
}

}  // namespace

std::string Base64(std::span<const float> values) {
  static_assert(std::endian::native == std::endian::little);
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  const size_t size = values.size_bytes();
  std::string text;
  text.reserve((size + 2) / 3 * 4);
  for (size_t i = 0; i < size; i += 3) {
    const uint32_t b = i + 1 < size ? bytes[i + 1] : 0, c = i + 2 < size ? bytes[i + 2] : 0;
    const uint32_t three = static_cast<uint32_t>(bytes[i]) << 16 | b << 8 | c;
    text += kDigits[three >> 18];
    text += kDigits[three >> 12 & 63];
    text += i + 1 < size ? kDigits[three >> 6 & 63] : '=';
    text += i + 2 < size ? kDigits[three & 63] : '=';
  }
  return text;
}

std::string Quoted(std::string_view text) { return "\"" + base::CleanText(text, 64) + "\""; }

Reply JsonError(int status, std::string_view sentence) {
  return {status, "application/json", Dump({{"error", std::string(sentence)}}) + "\n"};
}
Reply JsonReply(std::string body) { return {200, "application/json", std::move(body) + "\n"}; }

std::string RunsJson(const std::string& version, const std::string& not_ready_reason,
                     const std::vector<std::shared_ptr<const engine::RunState>>& runs) {
  Value out;
  out["version"] = version;
  out["not_ready"] = TextOrNull(not_ready_reason);
  out["runs"] = Value::array();
  for (const auto& run : runs) {
    Value row = Summary(*run);
    row["loss"] = run->last.Has(Signal::kLoss) ? Real(run->last.Scalar(Signal::kLoss)) : Value(nullptr);
    row["severity"] = nullptr;
    auto worst = std::max_element(run->open_findings.begin(), run->open_findings.end(),
                                  [](const auto& a, const auto& b) { return a.severity < b.severity; });
    if (worst != run->open_findings.end()) row["severity"] = model::Token(worst->severity);
    row["headline"] = run->episode && !run->episode->closed ? Value(run->episode->headline) : Value(nullptr);
    out["runs"].push_back(std::move(row));
  }
  return Dump(out);
}

std::string RunJson(const engine::RunState& run, const Kept& kept) {
  Value out = Summary(run);
  out["revision"] = Revision(run);
  out["scalars"] = Scalars(run.last);
  out["model"] = {{"layers", run.spec.layers},
                  {"heads", run.spec.heads},
                  {"kv_heads", run.spec.kv_heads},
                  {"hidden_size", run.spec.hidden_size},
                  {"attention", TextOrNull(model::Token(run.spec.attention))},
                  {"norm_placement", TextOrNull(model::Token(run.spec.norm_placement))},
                  {"qk_norm", TextOrNull(model::Token(run.spec.qk_norm))},
                  {"preset", TextOrNull(run.spec.preset)}};
  out["attn_logit_kind"] = TextOrNull(model::Token(run.last.attn_logit_kind));
  out["allow"] = run.allow;
  out["tau"] = run.tau;
  out["heads_over_tau"] = run.heads_over_tau;
  out["worst_heads"] = Value::array();
  for (const engine::HeadMax& each : run.worst_heads)
    out["worst_heads"].push_back(
        {{"layer", each.layer}, {"head", each.head}, {"value", Real(static_cast<double>(each.value))}});
  out["qk_clip_scale_min"] = run.qk_clip_scale_min;
  out["headroom_steps"] = Real(run.headroom_steps);
  out["reports_total"] = run.reports_total;
  out["reports_dropped_total"] = run.reports_dropped_total;
  out["decisions"] = Value::array();
  for (const model::Decision& each : run.recent_decisions)
    out["decisions"].push_back({{"step", each.step},
                                {"kind", model::Token(each.kind)},
                                {"acted", each.acted},
                                {"reason", each.reason}});
  Newest(kept.findings, kFindingsMax, "findings", &out,
         [](const auto& row) { return OfAttempt(json::FindingValue(row.finding), row.attempt); });
  Newest(kept.episodes, kEpisodesMax, "episodes", &out,
         [](const auto& row) { return json::EpisodeValue(row.diagnosis); });
  Newest(kept.interventions, kInterventionsMax, "interventions", &out,
         [](const auto& row) { return OfAttempt(json::InterventionValue(row.intervention), row.attempt); });
  return Dump(out);
}

std::string InterventionJson(const engine::RunState& run, const engine::History::InterventionRow& row) {
  Value out = OfAttempt(json::InterventionValue(row.intervention), row.attempt);
  out["run"] = run.run;
  return Dump(out);
}

std::string EventJson(const engine::RunState& run) {
  Value out = Summary(run);
  out["revision"] = Revision(run);
  out["tau"] = run.tau;
  out["heads_over_tau"] = run.heads_over_tau;
  out["scalars"] = Scalars(run.last);
  out["arrays"] = Value::object();
  for (const Signal signal : kEventArrays)
    if (run.last.Has(signal)) out["arrays"][std::string(model::SignalName(signal))] = ArrayValue(run, run.last, signal);
  return Dump(out);
}

std::string SeriesJson(const SeriesText& series) {
  Value out;
  out["signal"] = series.signal;
  out["points_max"] = series.points_max;
  out["points"] = Value::array();
  for (const engine::SeriesPoint& each : series.points) out["points"].push_back({each.step, Real(each.value)});
  Value& history = out["history"];
  history["reduced"] = Value::array();
  for (const engine::ReducedRange& range : series.notes.reduced)
    history["reduced"].push_back(
        {{"from_step", range.from_step}, {"to_step", range.to_step}, {"resolution", engine::Token(range.resolution)}});
  history["chunks_damaged"] = series.notes.chunks_damaged;
  history["reports_dropped"] = series.notes.reports_dropped;
  return Dump(out);
}

std::string ArrayJson(const engine::RunState& run, const StoredReport& stored, Signal signal) {
  const model::Report& report = stored.report;
  if (!report.Has(signal)) return "";
  Value out;
  out["signal"] = std::string(model::SignalName(signal));
  out["step"] = report.step;
  out["resolution"] = engine::Token(stored.resolution);
  out.update(ArrayValue(run, report, signal));
  return Dump(out);
}

std::string LayerMapJson(const std::string& signal, const LayerMap& map) {
  Value out;
  out["signal"] = signal;
  out["layers"] = map.rows;
  out["sampled"] = map.sampled;
  out["resolution"] = engine::Token(map.resolution);
  out["steps"] = map.steps;
  out["values"] = Base64(map.values);
  return Dump(out);
}

}  // namespace gyrostat::web
