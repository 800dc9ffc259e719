#include "ctl/json.h"

#include <array>
#include <charconv>
#include <cmath>

#include "ctl/text.h"
#include "json/values.h"
#include "model/ids.h"
#include "model/intervention.h"
#include "model/signal.h"

namespace gyrostat::ctl {
namespace {

using json::Dump, json::Real, json::Value;

// The shortest decimal that reads back as this float, instead of the digits of its widening to double.
Value Real(float value) {
  if (model::IsAbsent(static_cast<double>(value))) return nullptr;
  if (!std::isfinite(value)) return Real(static_cast<double>(value));
  std::array<char, 32> raw;
  const auto end = std::to_chars(raw.data(), raw.data() + raw.size(), value).ptr;
  double wide = 0;
  std::from_chars(raw.data(), end, wide);
  return wide;
}

Value Text(const std::string& text) { return text; }
Value TextOrNull(const std::string& text) { return text.empty() ? Value(nullptr) : Value(text); }

Value Summary(const v1::RunSummary& run) {
  Value out;
  out["run"] = Text(run.run());
  out["attempt"] = TextOrNull(AttemptHex(run.attempt()));
  out["attempts"] = run.attempts();
  out["state"] = Text(run.state());
  out["mode"] = TextOrNull(Token(run.mode()));
  out["step"] = run.step();
  out["ranks"] = run.ranks();
  out["last_report_at"] = TextOrNull(Rfc3339(run.last_report_at_ms()));
  out["findings_open"] = run.findings_open();
  out["interventions_pending"] = run.interventions_pending();
  return out;
}

Value FindingValue(const v1::Finding& finding) {
  Value out;
  out["id"] = finding.id();
  out["run"] = Text(finding.run());
  out["attempt"] = TextOrNull(AttemptHex(finding.attempt()));
  out["episode"] = finding.has_episode() ? Value(finding.episode()) : Value(nullptr);
  out["rules"] = "gyrostat";
  out["detector"] = Text(finding.detector());
  out["severity"] = Text(finding.severity());
  out["signal"] = TextOrNull(finding.signal());
  out["layer"] = finding.has_layer() ? Value(finding.layer()) : Value(nullptr);
  out["head"] = finding.has_head() ? Value(finding.head()) : Value(nullptr);
  out["rank"] = finding.has_rank() ? Value(finding.rank()) : Value(nullptr);
  out["step_begin"] = finding.step_begin();
  out["step_detected"] = finding.step_detected();
  out["step_end"] = finding.has_step_end() ? Value(finding.step_end()) : Value(nullptr);
  out["healed"] = finding.has_healed() ? Value(finding.healed()) : Value(nullptr);
  out["value"] = Real(finding.value());
  out["expected"] = Real(finding.expected());
  out["message"] = Text(finding.message());
  out["recommend"] = TextOrNull(Token(finding.recommend()));
  return out;
}

Value EpisodeValue(const v1::Episode& episode) {
  Value out;
  out["id"] = episode.id();
  out["run"] = Text(episode.run());
  out["attempt"] = TextOrNull(AttemptHex(episode.attempt()));
  out["closed"] = episode.closed();
  out["severity"] = Text(episode.severity());
  out["cause"] = episode.causes().empty() ? Value(nullptr) : Value(episode.causes(0).cause());
  out["causes"] = Value::array();
  for (const v1::Cause& each : episode.causes())
    out["causes"].push_back({{"cause", Text(each.cause())}, {"weight", Real(each.weight())}});
  out["step_begin"] = episode.step_begin();
  out["step_end"] = episode.has_step_end() ? Value(episode.step_end()) : Value(nullptr);
  out["healed"] = episode.has_healed() ? Value(episode.healed()) : Value(nullptr);
  out["detector"] = TextOrNull(episode.detector());
  out["signal"] = TextOrNull(episode.signal());
  out["layer"] = episode.has_layer() ? Value(episode.layer()) : Value(nullptr);
  out["head"] = episode.has_head() ? Value(episode.head()) : Value(nullptr);
  out["rank"] = episode.has_rank() ? Value(episode.rank()) : Value(nullptr);
  out["first_step"] = episode.first_step();
  out["common_mode"] = episode.common_mode();
  out["recommend"] = TextOrNull(Token(episode.recommend()));
  out["headline"] = Text(episode.headline());
  out["advice"] = Text(episode.advice());
  out["likely"] = TextOrNull(episode.likely());
  out["evidence"] = Value::array();
  for (const std::string& each : episode.evidence()) out["evidence"].push_back(Text(each));
  out["findings"] = episode.findings();
  return out;
}

Value InterventionValue(const v1::Intervention& intent) {
  Value out;
  out["id"] = Text(intent.id());
  out["run"] = Text(intent.run());
  out["attempt"] = TextOrNull(AttemptHex(intent.attempt()));
  out["kind"] = TextOrNull(Token(intent.kind()));
  out["state"] = Text(intent.state());
  out["outcome"] = TextOrNull(intent.outcome());
  out["mode"] = TextOrNull(Token(intent.mode()));
  out["reason"] = Text(intent.reason());
  out["author"] = Text(intent.author());
  out["step_proposed"] = intent.step_proposed();
  out["step_applied"] = intent.has_step_applied() ? Value(intent.step_applied()) : Value(nullptr);
  out["orders"] = intent.orders();
  out["orders_applied"] = intent.orders_applied();
  out["heads"] = intent.heads();
  out["median_delay_steps"] =
      intent.has_median_delay_boundaries() ? Real(intent.median_delay_boundaries()) : Value(nullptr);
  return out;
}

Value ModelValue(const v1::ModelSpec& spec) {
  Value out = Value::object();
  if (spec.has_preset()) out["preset"] = Text(spec.preset());
  if (spec.has_layers()) out["layers"] = spec.layers();
  if (spec.has_hidden_size()) out["hidden_size"] = spec.hidden_size();
  if (spec.has_heads()) out["heads"] = spec.heads();
  if (spec.has_kv_heads()) out["kv_heads"] = spec.kv_heads();
  if (spec.has_head_dim()) out["head_dim"] = spec.head_dim();
  if (spec.has_attention()) out["attention"] = Text(spec.attention());
  if (spec.has_norm_kind()) out["norm_kind"] = Text(spec.norm_kind());
  if (spec.has_norm_eps()) out["norm_eps"] = Real(spec.norm_eps());
  if (spec.has_norm_gain()) out["norm_gain"] = Text(spec.norm_gain());
  if (spec.has_norm_placement()) out["norm_placement"] = Text(spec.norm_placement());
  if (spec.has_deepnorm_alpha()) out["deepnorm_alpha"] = Real(spec.deepnorm_alpha());
  if (spec.has_deepnorm_beta()) out["deepnorm_beta"] = Real(spec.deepnorm_beta());
  if (spec.has_qk_norm()) out["qk_norm"] = Text(spec.qk_norm());
  if (spec.has_logit_softcap()) out["logit_softcap"] = Real(spec.logit_softcap());
  if (spec.has_attention_bias()) out["attention_bias"] = spec.attention_bias();
  if (spec.has_activation()) out["activation"] = Text(spec.activation());
  if (spec.has_compute_dtype()) out["compute_dtype"] = Text(spec.compute_dtype());
  if (spec.has_master_fp32()) out["master_fp32"] = spec.master_fp32();
  if (spec.has_optimizer()) out["optimizer"] = Text(spec.optimizer());
  if (spec.has_vocab_size()) out["vocab_size"] = spec.vocab_size();
  if (!spec.has_schedule()) return out;
  Value schedule = Value::object();
  if (spec.schedule().has_kind()) schedule["kind"] = Text(spec.schedule().kind());
  if (spec.schedule().has_peak()) schedule["peak"] = Real(spec.schedule().peak());
  if (spec.schedule().has_warmup_steps()) schedule["warmup_steps"] = spec.schedule().warmup_steps();
  if (spec.schedule().has_total_steps()) schedule["total_steps"] = spec.schedule().total_steps();
  out["schedule"] = std::move(schedule);
  return out;
}

Value AttnLogitValue(const v1::AttnLogitInfo& info) {
  return {{"kind", TextOrNull(Token(info.kind()))},
          {"scaled", info.scaled()},
          {"masked", info.masked()},
          {"with_bias", info.with_bias()},
          {"pre_cap", info.pre_cap()}};
}

}  // namespace

// The wire has the numbers of model/. Proto3 enumerators are open: a stranger's number must not wrap into a known one.
const char* Token(v1::Mode mode) { return v1::Mode_IsValid(mode) ? model::Token(static_cast<model::Mode>(mode)) : ""; }
const char* Token(v1::InterventionKind kind) {
  return v1::InterventionKind_IsValid(kind) ? model::Token(static_cast<model::InterventionKind>(kind)) : "";
}
const char* Token(v1::AttnLogitInfo::Kind kind) {
  return v1::AttnLogitInfo::Kind_IsValid(kind) ? model::Token(static_cast<model::LogitKind>(kind)) : "";
}

std::string AttemptHex(const std::string& bytes) {
  const auto id = model::Id128::FromBytes(bytes);
  return id ? id->ToHex() : "";
}

std::string Json(const v1::RunSummary& run) { return Dump(Summary(run)); }
std::string Json(const v1::Finding& finding) { return Dump(FindingValue(finding)); }
std::string Json(const v1::Episode& episode) { return Dump(EpisodeValue(episode)); }
std::string Json(const v1::Intervention& intervention) { return Dump(InterventionValue(intervention)); }

std::string Json(const v1::RunView& view) {
  Value out = Summary(view.summary());
  out["model"] = ModelValue(view.model());
  out["attn_logit"] = AttnLogitValue(view.attn_logit());
  Value scalars = Value::object();
  for (const v1::ScalarValue& each : view.scalars()) scalars[each.signal()] = Real(each.value());
  out["scalars"] = std::move(scalars);
  out["layer_attn_logit_max"] = Value::array();
  for (const float value : view.layer_attn_logit_max()) out["layer_attn_logit_max"].push_back(Real(value));
  out["worst_heads"] = Value::array();
  for (const v1::HeadMax& each : view.worst_heads())
    out["worst_heads"].push_back({{"layer", each.layer()}, {"head", each.head()}, {"value", Real(each.value())}});
  out["heads_over_tau"] = view.heads_over_tau();
  out["tau"] = Real(view.tau());
  out["episode"] = view.has_episode() ? EpisodeValue(view.episode()) : Value(nullptr);
  out["open_findings"] = Value::array();
  for (const v1::Finding& each : view.open_findings()) out["open_findings"].push_back(FindingValue(each));
  out["open_interventions"] = Value::array();
  for (const v1::Intervention& each : view.open_interventions())
    out["open_interventions"].push_back(InterventionValue(each));
  out["recent_decisions"] = Value::array();
  for (const v1::Decision& each : view.recent_decisions())
    out["recent_decisions"].push_back({{"step", each.step()}, {"kind", TextOrNull(Token(each.kind()))},
                                       {"acted", each.acted()}, {"reason", Text(each.reason())}});
  out["allow"] = Value::array();
  for (const std::string& kind : view.allow()) out["allow"].push_back(Text(kind));
  out["reports_total"] = view.reports_total();
  out["reports_dropped_total"] = view.reports_dropped_total();
  return Dump(out);
}

std::string JsonHeader(const std::string& run, const v1::ExportAttempt& attempt) {
  Value out;
  out["gyrostat"] = 1;
  out["run"] = Text(run);
  out["attempt"] = TextOrNull(AttemptHex(attempt.attempt()));
  out["model"] = ModelValue(attempt.model());
  out["attn_logit"] = AttnLogitValue(attempt.attn_logit());
  return Dump(out);
}

std::string JsonExport(const std::string& run, const std::string& file, const std::string& format, uint64_t reports,
                       uint64_t attempts) {
  Value out;
  out["run"] = Text(run);
  out["file"] = Text(file);
  out["format"] = Text(format);
  out["reports"] = reports;
  out["attempts"] = attempts;
  return Dump(out);
}

std::string JsonPoint(int64_t step, double value) {
  Value out;
  out["step"] = step;
  out["value"] = Real(value);
  return Dump(out);
}

std::string JsonMode(const std::string& run, v1::Mode mode) {
  const std::pair<std::string, std::string> fields[] = {{"run", run}, {"mode", Token(mode)}};
  return JsonStrings(fields);
}

std::string JsonStrings(std::span<const std::pair<std::string, std::string>> fields) {
  Value out = Value::object();
  for (const auto& [name, value] : fields) out[name] = Text(value);
  return Dump(out);
}

std::string JsonQkClip(double tau, const std::string& variant, std::span<const ClippedHead> heads) {
  Value out;
  out["tau"] = Real(tau);
  out["variant"] = Text(variant);
  out["heads"] = Value::array();
  for (const ClippedHead& each : heads) {
    out["heads"].push_back({{"head", each.head}, {"max", Real(each.max)}, {"gamma", Real(each.gamma)},
                            {"q", Real(each.q)}, {"k", Real(each.k)}});
    Value& head = out["heads"].back();
    if (each.q_rope) head["q_rope"] = Real(*each.q_rope);
    for (const auto& [name, factor] : each.rows) head["rows"][name] = Real(factor);
  }
  return Dump(out);
}

std::string JsonDeepNorm(const std::string& arch, std::span<const DeepNormStack> stacks) {
  Value out;
  out["arch"] = Text(arch);
  out["encoder"] = nullptr;
  out["decoder"] = nullptr;
  for (const DeepNormStack& each : stacks)
    out[each.name] = {{"alpha", Real(each.alpha)}, {"beta", Real(each.beta)}, {"budget", Real(each.budget)}};
  return Dump(out);
}

std::string JsonWarmup(const std::string& kind, uint64_t at, uint64_t to, std::span<const WarmupStep> steps) {
  Value out;
  out["kind"] = Text(kind);
  out["at"] = at;
  out["to"] = to;
  out["steps"] = Value::array();
  for (const WarmupStep& each : steps)
    out["steps"].push_back({{"step", each.step}, {"base", Real(each.base)}, {"rate", Real(each.rate)}});
  return Dump(out);
}

std::string JsonConfig(const std::string& file, std::span<const std::string> errors) {
  Value out;
  out["file"] = Text(file);
  out["valid"] = errors.empty();
  out["errors"] = Value::array();
  for (const std::string& each : errors) out["errors"].push_back(Text(each));
  return Dump(out);
}

}  // namespace gyrostat::ctl
