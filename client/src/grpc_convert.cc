#include "client/src/grpc_convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/archive.h"
#include "base/bytes.h"

namespace gyrostat::client {
namespace {

constexpr uint32_t kProtocolVersion = 1;

template <class T>
bool Decode(std::string_view bytes, T* value) {
  base::ByteReader reader(bytes);
  return base::LoadFrom(&reader, value);
}

std::string Bytes(const model::Id128& id) { return std::string(id.AsBytes()); }

// Our enumerators have the wire's numbers.
v1::AttnLogitInfo::Kind ToWire(model::LogitKind kind) { return static_cast<v1::AttnLogitInfo::Kind>(kind); }
v1::Ack::Outcome ToWire(model::AckOutcome outcome) { return static_cast<v1::Ack::Outcome>(outcome); }

void ToWire(const model::LedgerDelta& in, v1::LedgerEntries* out) {
  out->mutable_layer()->Assign(in.layer.begin(), in.layer.end());
  out->mutable_head()->Assign(in.head.begin(), in.head.end());
  out->mutable_ticks()->Assign(in.ticks.begin(), in.ticks.end());
}

void ToWire(const model::ModelSpec& in, v1::ModelSpec* out) {
  if (in.layers != 0) out->set_layers(in.layers);
  if (in.hidden_size != 0) out->set_hidden_size(in.hidden_size);
  if (in.heads != 0) out->set_heads(in.heads);
  if (in.kv_heads != 0) out->set_kv_heads(in.kv_heads);
  if (in.head_dim != 0) out->set_head_dim(in.head_dim);
  if (in.vocab_size != 0) out->set_vocab_size(in.vocab_size);
  if (in.attention != model::Attention::kUnknown) out->set_attention(model::Token(in.attention));
  if (in.norm_kind != model::NormKind::kUnknown) out->set_norm_kind(model::Token(in.norm_kind));
  if (in.norm_gain != model::NormGain::kUnknown) out->set_norm_gain(model::Token(in.norm_gain));
  if (in.norm_placement != model::NormPlacement::kUnknown) out->set_norm_placement(model::Token(in.norm_placement));
  if (in.qk_norm != model::QkNorm::kUnknown) out->set_qk_norm(model::Token(in.qk_norm));
  if (in.norm_eps) out->set_norm_eps(*in.norm_eps);
  if (in.deepnorm_alpha) out->set_deepnorm_alpha(*in.deepnorm_alpha);
  if (in.deepnorm_beta) out->set_deepnorm_beta(*in.deepnorm_beta);
  if (in.logit_softcap) out->set_logit_softcap(*in.logit_softcap);
  if (in.attention_bias) out->set_attention_bias(*in.attention_bias);
  if (in.master_fp32) out->set_master_fp32(*in.master_fp32);
  if (!in.activation.empty()) out->set_activation(in.activation);
  if (!in.compute_dtype.empty()) out->set_compute_dtype(in.compute_dtype);
  if (!in.optimizer.empty()) out->set_optimizer(in.optimizer);
  if (!in.preset.empty()) out->set_preset(in.preset);
  if (in.schedule_kind != model::ScheduleKind::kUnknown)
    out->mutable_schedule()->set_kind(model::Token(in.schedule_kind));
  if (in.schedule_peak) out->mutable_schedule()->set_peak(*in.schedule_peak);
  if (in.warmup_steps) out->mutable_schedule()->set_warmup_steps(*in.warmup_steps);
  if (in.total_steps) out->mutable_schedule()->set_total_steps(*in.total_steps);
}

void ToWire(const model::Hello& in, v1::Hello* out) {
  out->set_protocol_version(kProtocolVersion);
  out->set_run(in.run);
  out->set_attempt(Bytes(in.attempt));
  out->set_epoch(in.epoch);
  out->set_boundary(in.boundary);
  out->set_ledger_version(in.ledger_version);
  ToWire(in.ledger, out->mutable_ledger());
  for (const model::Ack& ack : in.last_outcomes) {
    v1::OrderOutcome* outcome = out->add_last_outcomes();
    outcome->set_order_id(Bytes(ack.order_id));
    outcome->set_outcome(ToWire(ack.outcome));
    outcome->set_reason(ack.reason);
  }
  for (const std::string& kind : in.allow) out->add_allow(kind);
  out->set_tau_min(in.tau_min);
  ToWire(in.model, out->mutable_model());
  v1::AttnLogitInfo* info = out->mutable_attn_logit();
  info->set_kind(ToWire(in.attn_logit.kind));
  info->set_scaled(in.attn_logit.scaled);
  info->set_masked(in.attn_logit.masked);
  info->set_with_bias(in.attn_logit.with_bias);
  info->set_pre_cap(in.attn_logit.pre_cap);
  out->set_world_size(in.world_size);
  out->set_rank(in.rank);
  out->set_agreement_lag(in.agreement_lag);
  out->set_client_version(in.client_version);
  out->set_framework(in.framework);
  out->set_first_sequence(in.first_sequence);
  out->set_grad_norm_convention(in.grad_norm_convention);
  for (const model::RegisterReading& reading : in.registers) {
    v1::RegisterReading* each = out->add_registers();
    each->set_id(reading.id);
    each->set_from(reading.from);
    each->set_to(reading.to);
    each->set_first_boundary(reading.first);
    each->set_ramp_boundaries(reading.ramp);
    each->set_version(reading.version);
  }
}

// Values that were measured and are not finite.
template <class Range>
uint32_t NonFinite(const Range& values) {
  return static_cast<uint32_t>(std::count_if(values.begin(), values.end(), [](auto v) { return !std::isfinite(v); }));
}

void ToWire(const model::Report& in, v1::Report* out) {
  out->set_sequence(in.sequence);
  out->set_epoch(in.epoch);
  out->set_boundary(in.boundary);
  out->set_step(in.step);
  out->set_ledger_version(in.ledger_version);
  out->set_step_time_ms(in.step_time_ms);
  out->set_dropped_hot(in.dropped_hot);
  out->set_dropped_unacked(in.dropped_unacked);
  if (in.local_clips.applied.size() > 0) {
    v1::LocalClips* clips = out->mutable_local_clips();
    clips->set_boundary(in.local_clips.boundary);
    clips->set_ledger_version_before(in.local_clips.ledger_version_before);
    clips->set_ledger_version_after(in.local_clips.ledger_version_after);
    ToWire(in.local_clips.applied, clips->mutable_applied());
  }
  out->set_attn_logit_kind(ToWire(in.attn_logit_kind));
  uint32_t nonfinite = 0;
  for (const model::SignalInfo& info : model::Signals()) {
    if (!in.Has(info.signal)) continue;
    if (model::IsScalar(info.signal)) {
      out->add_scalar_signals(static_cast<uint32_t>(info.signal));
      out->add_scalars(in.Scalar(info.signal));
      continue;
    }
    const std::span<const float> values = in.Array(info.signal);
    v1::SignalValues* array = out->add_arrays();
    array->set_signal(static_cast<uint32_t>(info.signal));
    array->set_values(values.data(), values.size_bytes());
    nonfinite += NonFinite(values);
  }
  for (const auto& [name, value] : in.user) {
    out->add_user_names(name);
    out->add_user_values(value);
  }
  out->set_nonfinite_total(nonfinite + NonFinite(out->scalars()) + NonFinite(out->user_values()));
}

void ToWire(const model::Ack& in, v1::Ack* out) {
  out->set_order_id(Bytes(in.order_id));
  out->set_outcome(ToWire(in.outcome));
  out->set_boundary(in.boundary);
  out->set_step(in.step);
  out->set_ledger_version_before(in.ledger_version_before);
  out->set_ledger_version_after(in.ledger_version_after);
  ToWire(in.applied, out->mutable_applied());
  out->set_state_digest(in.state_digest);
  out->set_reason(in.reason);
}

// A number that fits no enumerator of ours becomes one that none has.
template <class Enum>
Enum Narrow(int wire) {
  return static_cast<Enum>(wire >= 0 && wire < 255 ? wire : 255);
}

template <class Message>
bool Identity(const Message& in, model::Order* out, std::string* error) {
  const auto id = model::Id128::FromBytes(in.order_id());
  const auto attempt = model::Id128::FromBytes(in.attempt());
  if (!id || !attempt) {
    *error = "the daemon sent an order with an id of " + std::to_string(in.order_id().size()) + " and an attempt of " +
             std::to_string(in.attempt().size()) + " bytes, wanted 16 each";
    return false;
  }
  out->id = *id;
  out->attempt = *attempt;
  out->run = in.run();
  out->epoch = in.epoch();
  out->intent_id = in.intent_id();
  return true;
}

bool SetsFromWire(const v1::RegisterSets& in, model::Order* out, std::string* error) {
  if (in.value_size() != in.id_size() || in.expected_version_size() != in.id_size()) {
    *error = "the daemon sent an order whose sets have " + std::to_string(in.id_size()) + " registers, " +
             std::to_string(in.value_size()) + " values and " + std::to_string(in.expected_version_size()) +
             " versions, wanted as many of each";
    return false;
  }
  out->ramp = in.ramp_boundaries();
  out->sets.reserve(static_cast<size_t>(in.id_size()));
  for (int i = 0; i < in.id_size(); ++i) out->sets.push_back({in.id(i), in.value(i), in.expected_version(i)});
  return true;
}

bool FromWire(const v1::Order& in, model::Order* out, std::string* error) {
  if (!Identity(in, out, error)) return false;
  out->kind = Narrow<model::InterventionKind>(in.kind());
  out->where = model::ClipWhere::kRemote;
  out->basis = in.basis();
  out->expires_boundary = in.expires_boundary();
  out->tau = in.qk_clip().tau();
  out->variant = Narrow<model::ClipVariant>(in.qk_clip().variant());
  out->split = in.qk_clip().split();
  const v1::ClipEntries& entries = in.qk_clip().entries();
  const int size = entries.layer_size();
  if (entries.head_size() != size || entries.reported_max_size() != size || entries.target_ticks_size() != size) {
    *error = "the daemon sent an order whose entries have " + std::to_string(size) + " layers, " +
             std::to_string(entries.head_size()) + " heads, " + std::to_string(entries.reported_max_size()) +
             " maxima and " + std::to_string(entries.target_ticks_size()) + " targets, wanted as many of each";
    return false;
  }
  if (!SetsFromWire(in.sets(), out, error)) return false;
  out->entries.reserve(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i)
    out->entries.push_back({entries.layer(i), entries.head(i), entries.reported_max(i), entries.target_ticks(i)});
  return true;
}

bool FromWire(const v1::LocalClip& in, model::Order* out, std::string* error) {
  if (!Identity(in, out, error)) return false;
  out->kind = model::InterventionKind::kQkClip;
  out->where = model::ClipWhere::kLocal;
  out->tau = in.tau();
  out->variant = Narrow<model::ClipVariant>(in.variant());
  out->split = in.split();
  return true;
}

}  // namespace

bool ToWire(WireKind kind, std::string_view bytes, model::Report* scratch, v1::ClientMessage* out) {
  out->Clear();
  switch (kind) {
    case WireKind::kHello: {
      model::Hello hello;
      if (!Decode(bytes, &hello)) return false;
      ToWire(hello, out->mutable_hello());
      return true;
    }
    case WireKind::kReport:
      if (!Decode(bytes, scratch)) return false;
      ToWire(*scratch, out->mutable_report());
      return true;
    case WireKind::kAck: {
      model::Ack ack;
      if (!Decode(bytes, &ack)) return false;
      ToWire(ack, out->mutable_ack());
      return true;
    }
    case WireKind::kBye: {
      base::ByteReader reader(bytes);
      out->mutable_bye()->set_reason(reader.GetString());
      return reader.ok();
    }
  }
  return false;
}

bool FromWire(const v1::DaemonMessage& in, DownMessage* out, std::string* order, std::string* error) {
  *out = DownMessage{};
  switch (in.message_case()) {
    case v1::DaemonMessage::kWelcome:
      out->kind = DownKind::kWelcome;
      out->sequence = in.welcome().acknowledged_sequence();
      return true;
    case v1::DaemonMessage::kAcknowledged:
      out->kind = DownKind::kAcknowledged;
      out->sequence = in.acknowledged().sequence();
      return true;
    case v1::DaemonMessage::kOrder:
    case v1::DaemonMessage::kLocalClip: {
      model::Order value;
      const bool read = in.has_order() ? FromWire(in.order(), &value, error) : FromWire(in.local_clip(), &value, error);
      if (!read) return false;
      base::ByteWriter writer;
      base::SaveTo(&writer, value);
      *order = writer.Take();
      out->kind = DownKind::kOrder;
      out->bytes = order->data();
      out->size = order->size();
      return true;
    }
    case v1::DaemonMessage::MESSAGE_NOT_SET:
      *error = "";  // A newer daemon's word: passed over.
      return false;
  }
  return false;
}

}  // namespace gyrostat::client
