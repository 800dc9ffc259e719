#include "rpc/render.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <span>

#include "model/signal.h"

namespace gyrostat::rpc {
namespace {

using model::Signal;

// Numbers of the wire and of the model are one list each.
static_assert(static_cast<int>(model::Mode::kAct) == v1::ACT);
static_assert(static_cast<int>(model::InterventionKind::kQkClip) == v1::QK_CLIP);
static_assert(static_cast<int>(model::InterventionKind::kCollect) == v1::COLLECT);
static_assert(static_cast<int>(model::ClipVariant::kMha) == v1::MHA);
static_assert(static_cast<int>(model::ClipVariant::kLayerGain) == v1::LAYER_GAIN);
static_assert(static_cast<int>(model::LogitKind::kUnknown) == v1::AttnLogitInfo::KIND_UNSPECIFIED);
static_assert(static_cast<int>(model::LogitKind::kNormProduct) == v1::AttnLogitInfo::NORM_PRODUCT);

v1::InterventionKind ToWire(model::InterventionKind in) { return static_cast<v1::InterventionKind>(in); }
v1::ClipVariant ToWire(model::ClipVariant in) { return static_cast<v1::ClipVariant>(in); }
v1::AttnLogitInfo::Kind ToWire(model::LogitKind in) { return static_cast<v1::AttnLogitInfo::Kind>(in); }

std::string Bytes(const model::Id128& id) { return std::string(id.AsBytes()); }

void ToWire(const std::vector<model::ClipEntry>& in, v1::ClipEntries* out) {
  for (const model::ClipEntry& each : in) {
    out->add_layer(each.layer);
    out->add_head(each.head);
    out->add_reported_max(each.reported_max);
    out->add_target_ticks(each.target_ticks);
  }
}

void ToWire(const std::vector<model::RegisterSet>& in, uint32_t ramp, v1::RegisterSets* out) {
  out->set_ramp_boundaries(ramp);
  for (const model::RegisterSet& each : in) {
    out->add_id(each.id);
    out->add_value(each.value);
    out->add_expected_version(each.expected_version);
  }
}

void ToWire(const model::AttnLogitInfo& in, v1::AttnLogitInfo* out) {
  out->set_kind(ToWire(in.kind));
  out->set_scaled(in.scaled);
  out->set_masked(in.masked);
  out->set_with_bias(in.with_bias);
  out->set_pre_cap(in.pre_cap);
}

// Per layer the largest over its heads; NaN where a head is NaN (nothing compares greater), kAbsent where none was
// measured.
void LayerMaxima(std::span<const float> values, size_t layers, v1::RunView* out) {
  if (layers == 0 || values.empty() || values.size() % layers != 0) return;
  const size_t heads = values.size() / layers;
  for (size_t layer = 0; layer < layers; ++layer) {
    float largest = model::kAbsent;
    for (const float value : values.subspan(layer * heads, heads))
      if (std::isnan(value) || value > largest) largest = value;
    out->add_layer_attn_logit_max(largest);
  }
}

void Scalars(const model::Report& report, v1::RunView* out) {
  for (const model::SignalInfo& info : model::Signals()) {
    if (!model::IsScalar(info.signal) || !report.Has(info.signal)) continue;
    v1::ScalarValue* scalar = out->add_scalars();
    scalar->set_signal(std::string(info.name));
    scalar->set_value(report.Scalar(info.signal));
  }
  for (const auto& [name, value] : report.user) {
    v1::ScalarValue* scalar = out->add_scalars();
    scalar->set_signal(name);
    scalar->set_value(value);
  }
}

}  // namespace

void ToWire(const model::Order& in, v1::DaemonMessage* out) {
  if (in.where == model::ClipWhere::kLocal) {
    v1::LocalClip* local = out->mutable_local_clip();
    local->set_order_id(Bytes(in.id));
    local->set_run(in.run);
    local->set_attempt(Bytes(in.attempt));
    local->set_epoch(in.epoch);
    local->set_intent_id(in.intent_id);
    local->set_tau(in.tau);
    local->set_variant(ToWire(in.variant));
    local->set_split(in.split);
    return;
  }
  v1::Order* order = out->mutable_order();
  order->set_order_id(Bytes(in.id));
  order->set_run(in.run);
  order->set_attempt(Bytes(in.attempt));
  order->set_epoch(in.epoch);
  order->set_kind(ToWire(in.kind));
  order->set_basis(in.basis);
  order->set_expires_boundary(in.expires_boundary);
  order->set_intent_id(in.intent_id);
  if (in.kind != model::InterventionKind::kQkClip) return ToWire(in.sets, in.ramp, order->mutable_sets());
  v1::QkClip* clip = order->mutable_qk_clip();
  clip->set_tau(in.tau);
  clip->set_variant(ToWire(in.variant));
  clip->set_split(in.split);
  ToWire(in.entries, clip->mutable_entries());
}

v1::Mode ToWire(model::Mode in) { return static_cast<v1::Mode>(in); }

void ToWire(const engine::RunState& in, v1::RunSummary* out) {
  out->set_run(in.run);
  out->set_attempt(Bytes(in.attempt));
  out->set_attempts(in.attempts);
  out->set_state(engine::Token(in.life));
  out->set_mode(ToWire(in.mode));
  out->set_step(in.step);
  out->set_ranks(in.ranks);
  out->set_last_report_at_ms(in.last_report_unix_ms);
  out->set_findings_open(static_cast<uint32_t>(in.open_findings.size()));
  out->set_interventions_pending(in.interventions_pending);
}

void ToWire(const engine::RunState& in, v1::RunView* out) {
  ToWire(in, out->mutable_summary());
  ToWire(in.spec, out->mutable_model());
  ToWire(in.attn_logit, out->mutable_attn_logit());
  Scalars(in.last, out);
  LayerMaxima(in.last.Array(Signal::kAttnLogitMax), in.spec.layers, out);
  for (const engine::HeadMax& each : in.worst_heads) {
    v1::HeadMax* head = out->add_worst_heads();
    head->set_layer(each.layer);
    head->set_head(each.head);
    head->set_value(each.value);
  }
  out->set_heads_over_tau(in.heads_over_tau);
  out->set_tau(in.tau);
  for (const model::Finding& each : in.open_findings) ToWire(each, in.run, in.attempt, out->add_open_findings());
  if (in.episode) ToWire(*in.episode, in.run, in.attempt, out->mutable_episode());
  for (const model::Intervention& each : in.open_interventions)
    ToWire(each, in.run, in.attempt, out->add_open_interventions());
  for (const model::Decision& each : in.recent_decisions) {
    v1::Decision* decision = out->add_recent_decisions();
    decision->set_step(each.step);
    decision->set_kind(ToWire(each.kind));
    decision->set_acted(each.acted);
    decision->set_reason(each.reason);
  }
  for (const std::string& kind : in.allow) out->add_allow(kind);
  out->set_reports_total(in.reports_total);
  out->set_reports_dropped_total(in.reports_dropped_total);
}

void AddHeads(const engine::RunState& in, v1::RunView* out) {
  const std::span<const float> heads = in.last.Array(Signal::kAttnLogitMax);
  out->mutable_head_attn_logit_max()->Add(heads.begin(), heads.end());
}

void ToWire(const model::Finding& in, const std::string& run, const model::AttemptId& attempt, v1::Finding* out) {
  out->set_id(in.id);
  out->set_run(run);
  out->set_attempt(Bytes(attempt));
  if (in.episode != 0) out->set_episode(in.episode);
  out->set_detector(in.detector);
  out->set_severity(model::Token(in.severity));
  out->set_signal(std::string(model::SignalName(in.signal)));
  if (in.layer) out->set_layer(*in.layer);
  if (in.head) out->set_head(*in.head);
  if (in.rank) out->set_rank(*in.rank);
  out->set_step_begin(in.step_begin);
  out->set_step_detected(in.step_detected);
  if (in.step_end) out->set_step_end(*in.step_end);
  if (in.healed) out->set_healed(*in.healed);
  out->set_value(in.value);
  out->set_expected(in.expected);
  out->set_message(in.message);
  if (in.recommend) out->set_recommend(ToWire(*in.recommend));
}

void ToWire(const diagnose::Diagnosis& in, const std::string& run, const model::AttemptId& attempt, v1::Episode* out) {
  out->set_id(in.episode);
  out->set_run(run);
  out->set_attempt(Bytes(attempt));
  out->set_closed(in.closed);
  out->set_findings(in.findings);
  for (const diagnose::Candidate& each : in.ranked) {
    v1::Cause* cause = out->add_causes();
    cause->set_cause(diagnose::Token(each.cause));
    cause->set_weight(each.weight);
  }
  out->set_severity(model::Token(in.severity));
  out->set_step_begin(in.step_begin);
  if (in.step_end) out->set_step_end(*in.step_end);
  if (in.healed) out->set_healed(*in.healed);
  out->set_detector(in.detector);
  out->set_signal(std::string(model::SignalName(in.signal)));
  if (in.layer) out->set_layer(*in.layer);
  if (in.head) out->set_head(*in.head);
  if (in.rank) out->set_rank(*in.rank);
  out->set_first_step(in.first_step);
  out->set_common_mode(in.common_mode);
  if (in.recommend) out->set_recommend(ToWire(*in.recommend));
  out->set_headline(in.headline);
  out->set_advice(in.advice);
  out->set_likely(in.likely);
  for (const std::string& each : in.evidence) out->add_evidence(each);
  out->set_page(in.Text());
}

void ToWire(const model::Intervention& in, const std::string& run, const model::AttemptId& attempt,
            v1::Intervention* out) {
  out->set_id(in.id);
  out->set_run(run);
  out->set_attempt(Bytes(attempt));
  out->set_kind(ToWire(in.kind));
  out->set_state(model::Token(in.state));
  if (in.outcome) out->set_outcome(model::Token(*in.outcome));
  out->set_mode(ToWire(in.mode));
  out->set_reason(in.reason);
  out->set_author(in.author);
  out->set_step_proposed(in.step_proposed);
  if (in.step_applied) out->set_step_applied(*in.step_applied);
  out->set_orders(in.orders);
  out->set_orders_applied(in.orders_applied);
  out->set_heads(in.heads);
  if (in.median_delay_boundaries) out->set_median_delay_boundaries(*in.median_delay_boundaries);
}

void ToWire(const model::ModelSpec& in, v1::ModelSpec* out) {
  const auto known = [](uint32_t value, auto set) { if (value != 0) set(value); };
  const auto named = [](const std::string& value, auto set) { if (!value.empty()) set(value); };
  known(in.layers, [&](uint32_t v) { out->set_layers(v); });
  known(in.hidden_size, [&](uint32_t v) { out->set_hidden_size(v); });
  known(in.heads, [&](uint32_t v) { out->set_heads(v); });
  known(in.kv_heads, [&](uint32_t v) { out->set_kv_heads(v); });
  known(in.head_dim, [&](uint32_t v) { out->set_head_dim(v); });
  known(in.vocab_size, [&](uint32_t v) { out->set_vocab_size(v); });
  named(model::Token(in.attention), [&](const std::string& v) { out->set_attention(v); });
  named(model::Token(in.norm_kind), [&](const std::string& v) { out->set_norm_kind(v); });
  named(model::Token(in.norm_gain), [&](const std::string& v) { out->set_norm_gain(v); });
  named(model::Token(in.norm_placement), [&](const std::string& v) { out->set_norm_placement(v); });
  named(model::Token(in.qk_norm), [&](const std::string& v) { out->set_qk_norm(v); });
  named(in.activation, [&](const std::string& v) { out->set_activation(v); });
  named(in.compute_dtype, [&](const std::string& v) { out->set_compute_dtype(v); });
  named(in.optimizer, [&](const std::string& v) { out->set_optimizer(v); });
  named(in.preset, [&](const std::string& v) { out->set_preset(v); });
  if (in.norm_eps) out->set_norm_eps(*in.norm_eps);
  if (in.deepnorm_alpha) out->set_deepnorm_alpha(*in.deepnorm_alpha);
  if (in.deepnorm_beta) out->set_deepnorm_beta(*in.deepnorm_beta);
  if (in.logit_softcap) out->set_logit_softcap(*in.logit_softcap);
  if (in.attention_bias) out->set_attention_bias(*in.attention_bias);
  if (in.master_fp32) out->set_master_fp32(*in.master_fp32);
  named(model::Token(in.schedule_kind), [&](const std::string& v) { out->mutable_schedule()->set_kind(v); });
  if (in.schedule_peak) out->mutable_schedule()->set_peak(*in.schedule_peak);
  if (in.warmup_steps) out->mutable_schedule()->set_warmup_steps(*in.warmup_steps);
  if (in.total_steps) out->mutable_schedule()->set_total_steps(*in.total_steps);
}

void ToWire(const model::Hello& in, const model::AttemptId& attempt, v1::ExportAttempt* out) {
  out->set_attempt(Bytes(attempt));
  ToWire(in.model, out->mutable_model());
  ToWire(in.attn_logit, out->mutable_attn_logit());
}

void ToWire(const model::Report& in, const std::set<std::string>& names, v1::Report* out) {
  const auto wanted = [&names](const auto& name) { return names.empty() || names.contains(std::string(name)); };
  out->set_sequence(in.sequence);
  out->set_epoch(in.epoch);
  out->set_boundary(in.boundary);
  out->set_step(in.step);
  out->set_ledger_version(in.ledger_version);
  out->set_step_time_ms(in.step_time_ms);
  out->set_dropped_hot(in.dropped_hot);
  out->set_dropped_unacked(in.dropped_unacked);
  out->set_attn_logit_kind(ToWire(in.attn_logit_kind));
  if (in.local_clips.applied.size() > 0) {
    v1::LocalClips* clips = out->mutable_local_clips();
    clips->set_boundary(in.local_clips.boundary);
    clips->set_ledger_version_before(in.local_clips.ledger_version_before);
    clips->set_ledger_version_after(in.local_clips.ledger_version_after);
    const model::LedgerDelta& applied = in.local_clips.applied;
    clips->mutable_applied()->mutable_layer()->Add(applied.layer.begin(), applied.layer.end());
    clips->mutable_applied()->mutable_head()->Add(applied.head.begin(), applied.head.end());
    clips->mutable_applied()->mutable_ticks()->Add(applied.ticks.begin(), applied.ticks.end());
  }
  for (const model::SignalInfo& info : model::Signals()) {
    if (!in.Has(info.signal) || !wanted(info.name)) continue;
    if (model::IsScalar(info.signal)) {
      out->add_scalar_signals(static_cast<uint32_t>(info.signal));
      out->add_scalars(in.Scalar(info.signal));
      continue;
    }
    static_assert(std::endian::native == std::endian::little);
    const std::span<const float> values = in.Array(info.signal);
    v1::SignalValues* array = out->add_arrays();
    array->set_signal(static_cast<uint32_t>(info.signal));
    array->set_values(values.data(), values.size_bytes());
  }
  for (const auto& [name, value] : in.user) {
    if (!wanted(name)) continue;
    out->add_user_names(name);
    out->add_user_values(value);
  }
}

void ToWire(const engine::HistoryNotes& in, v1::SeriesChunk* out) {
  if (in.reduced.empty() && in.chunks_damaged == 0 && in.reports_dropped == 0) return;
  v1::HistoryNotes* notes = out->mutable_notes();
  for (const engine::ReducedRange& range : in.reduced) {
    v1::ReducedRange* each = notes->add_reduced();
    each->set_from_step(range.from_step);
    each->set_to_step(range.to_step);
    each->set_resolution(engine::Token(range.resolution));
  }
  notes->set_chunks_damaged(in.chunks_damaged);
  notes->set_reports_dropped(in.reports_dropped);
}

}  // namespace gyrostat::rpc
