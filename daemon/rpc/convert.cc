#include "rpc/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/text.h"
#include "model/ids.h"
#include "model/signal.h"
#include "remedy/registers.h"
#include "rpc/text.h"

namespace gyrostat::rpc {
namespace {

using model::Signal;

constexpr size_t kTokenBytesMax = 64;    // Names of versions, frameworks, optimizers.
constexpr size_t kReasonBytesMax = 1024;  // A sentence or two.
constexpr int kScalarsMax = 256, kArraysMax = 64, kAllowMax = 64;  // Far above what any version numbers or names.

absl::Status Refuse(const std::string& field, const std::string& seen, const std::string& wanted) {
  return absl::InvalidArgumentError(field + " is " + seen + ", wanted " + wanted);
}

absl::Status CheckCount(const char* field, uint64_t seen, uint64_t low, uint64_t high) {
  if (seen >= low && seen <= high) return absl::OkStatus();
  return Refuse(field, std::to_string(seen), std::to_string(low) + " to " + std::to_string(high));
}

absl::Status CheckNumber(const char* field, double seen, double low, double high) {
  if (seen >= low && seen <= high) return absl::OkStatus();  // False for NaN.
  return Refuse(field, NumberText(seen), NumberText(low) + " to " + NumberText(high));
}

absl::Status CheckStep(const char* field, int64_t seen) {
  if (seen >= -kStepMax && seen <= kStepMax) return absl::OkStatus();
  return Refuse(field, std::to_string(seen), "a step within 2^53 of 0");
}

// The first that is not ok.
absl::Status First(std::initializer_list<absl::Status> all) {
  for (const absl::Status& each : all)
    if (!each.ok()) return each;
  return absl::OkStatus();
}

absl::Status IdFromWire(const char* field, const std::string& bytes, model::Id128* out) {
  const std::optional<model::Id128> id = model::Id128::FromBytes(bytes);
  if (!id) return Refuse(field, std::to_string(bytes.size()) + " bytes", "16 bytes");
  if (id->IsZero()) return Refuse(field, "all zero", "random bytes");
  *out = *id;
  return absl::OkStatus();
}

// Heads named twice would be charged twice.
absl::Status CheckDistinct(const std::string& field, const model::LedgerDelta& entries) {
  std::vector<uint32_t> keys(entries.size());
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = entries.layer[i] * model::kHeadsMax + entries.head[i];
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice == keys.end()) return absl::OkStatus();
  return Refuse(field, "layer " + std::to_string(*twice / model::kHeadsMax) + " head " +
                           std::to_string(*twice % model::kHeadsMax) + " named twice", "each head once");
}

absl::Status FromWire(const std::string& field, const v1::LedgerEntries& in, const model::ModelSpec& spec,
                      int64_t ticks_max, model::LedgerDelta* out) {
  const uint32_t layers = spec.layers == 0 ? model::kLayersMax : spec.layers;
  const uint32_t heads = spec.heads == 0 ? model::kHeadsMax : spec.heads;
  if (in.layer_size() != in.head_size() || in.layer_size() != in.ticks_size())
    return Refuse(field, std::to_string(in.layer_size()) + " layers, " + std::to_string(in.head_size()) + " heads, " +
                             std::to_string(in.ticks_size()) + " ticks", "one of each per head");
  if (static_cast<uint32_t>(in.layer_size()) > kLayerHeadsMax)
    return Refuse(field, std::to_string(in.layer_size()) + " heads", "at most " + std::to_string(kLayerHeadsMax));
  out->layer.assign(in.layer().begin(), in.layer().end());
  out->head.assign(in.head().begin(), in.head().end());
  out->ticks.assign(in.ticks().begin(), in.ticks().end());
  for (size_t i = 0; i < out->size(); ++i) {
    if (out->layer[i] >= layers)
      return Refuse(field + ".layer", std::to_string(out->layer[i]), "below " + std::to_string(layers));
    if (out->head[i] >= heads)
      return Refuse(field + ".head", std::to_string(out->head[i]), "below " + std::to_string(heads));
    if (out->ticks[i] < 0 || out->ticks[i] > ticks_max)
      return Refuse(field + ".ticks", std::to_string(out->ticks[i]), "0 to " + std::to_string(ticks_max));
  }
  return CheckDistinct(field, *out);
}

model::LogitKind FromWire(v1::AttnLogitInfo::Kind in) {
  switch (in) {
    case v1::AttnLogitInfo::EXACT: return model::LogitKind::kExact;
    case v1::AttnLogitInfo::LSE_UPPER: return model::LogitKind::kLseUpper;
    case v1::AttnLogitInfo::SAMPLED_LOWER: return model::LogitKind::kSampledLower;
    case v1::AttnLogitInfo::NORM_PRODUCT: return model::LogitKind::kNormProduct;
    default: return model::LogitKind::kUnknown;  // A newer client's kind: nothing may be clipped by it.
  }
}

std::optional<model::AckOutcome> FromWire(v1::Ack::Outcome in) {
  switch (in) {
    case v1::Ack::APPLIED: return model::AckOutcome::kApplied;
    case v1::Ack::REFUSED: return model::AckOutcome::kRefused;
    case v1::Ack::VOID: return model::AckOutcome::kVoid;
    case v1::Ack::EXPIRED: return model::AckOutcome::kExpired;
    case v1::Ack::FOREIGN: return model::AckOutcome::kForeign;
    case v1::Ack::FAILED: return model::AckOutcome::kFailed;
    default: return std::nullopt;
  }
}

// What became of an order, as an ack and a hello's last_outcomes both tell it.
absl::Status OutcomeFromWire(const char* field, const std::string& id, v1::Ack::Outcome outcome,
                             const std::string& reason, model::Ack* out) {
  const std::optional<model::AckOutcome> known = FromWire(outcome);
  if (!known) return Refuse(std::string(field) + ".outcome", std::to_string(outcome), "1 to 6");
  out->outcome = *known;
  out->reason = base::CleanText(reason, kReasonBytesMax);
  return IdFromWire((std::string(field) + ".order_id").c_str(), id, &out->order_id);
}

absl::Status ScheduleFromWire(const v1::Schedule& in, model::ModelSpec* out) {
  out->schedule_kind = model::ScheduleKindOf(in.kind());
  if (in.has_peak()) out->schedule_peak = in.peak();
  if (in.has_warmup_steps()) out->warmup_steps = in.warmup_steps();
  if (in.has_total_steps()) out->total_steps = in.total_steps();
  return First({CheckNumber("model.schedule.peak", in.peak(), 0, 1e6),
                CheckCount("model.schedule.warmup_steps", in.warmup_steps(), 0, kCountMax),
                CheckCount("model.schedule.total_steps", in.total_steps(), 0, kCountMax)});
}

absl::Status CheckHeads(const model::ModelSpec& spec) {
  if (const absl::Status s = First({CheckCount("model.layers", spec.layers, 0, model::kLayersMax),
                                    CheckCount("model.heads", spec.heads, 0, model::kHeadsMax),
                                    CheckCount("model.kv_heads", spec.kv_heads, 0, model::kHeadsMax)});
      !s.ok())
    return s;
  if (spec.layers * spec.heads > kLayerHeadsMax)
    return Refuse("model.layers x model.heads", std::to_string(spec.layers * spec.heads),
                  "at most " + std::to_string(kLayerHeadsMax));
  if (spec.heads > 0 && spec.kv_heads > 0 && spec.heads % spec.kv_heads != 0)
    return Refuse("model.kv_heads", std::to_string(spec.kv_heads),
                  "a divisor of heads = " + std::to_string(spec.heads));
  return absl::OkStatus();
}

absl::Status FromWire(const v1::ModelSpec& in, model::ModelSpec* out) {
  out->layers = in.layers();
  out->hidden_size = in.hidden_size();
  out->heads = in.heads();
  out->kv_heads = in.kv_heads();
  out->head_dim = in.head_dim();
  out->vocab_size = in.vocab_size();
  out->attention = model::AttentionOf(in.attention());
  out->norm_kind = model::NormKindOf(in.norm_kind());
  out->norm_gain = model::NormGainOf(in.norm_gain());
  out->norm_placement = model::NormPlacementOf(in.norm_placement());
  out->qk_norm = model::QkNormOf(in.qk_norm());
  if (in.has_norm_eps()) out->norm_eps = in.norm_eps();
  if (in.has_deepnorm_alpha()) out->deepnorm_alpha = in.deepnorm_alpha();
  if (in.has_deepnorm_beta()) out->deepnorm_beta = in.deepnorm_beta();
  if (in.has_logit_softcap()) out->logit_softcap = in.logit_softcap();
  if (in.has_attention_bias()) out->attention_bias = in.attention_bias();
  if (in.has_master_fp32()) out->master_fp32 = in.master_fp32();
  out->activation = base::CleanText(in.activation(), kTokenBytesMax);
  out->compute_dtype = base::CleanText(in.compute_dtype(), kTokenBytesMax);
  out->optimizer = base::CleanText(in.optimizer(), kTokenBytesMax);
  out->preset = base::CleanText(in.preset(), kTokenBytesMax);
  return First({CheckHeads(*out),
                CheckCount("model.hidden_size", in.hidden_size(), 0, 1u << 24),
                CheckCount("model.head_dim", in.head_dim(), 0, 1u << 24),
                CheckCount("model.vocab_size", in.vocab_size(), 0, 1u << 30),
                CheckNumber("model.norm_eps", in.norm_eps(), 0, 1),
                CheckNumber("model.deepnorm_alpha", in.deepnorm_alpha(), 0, 1e6),
                CheckNumber("model.deepnorm_beta", in.deepnorm_beta(), 0, 1e6),
                CheckNumber("model.logit_softcap", in.logit_softcap(), 0, 1e6),
                ScheduleFromWire(in.schedule(), out)});
}

absl::Status ScalarsFromWire(const v1::Report& in, model::Report* out, uint64_t* unknown_signals) {
  if (in.scalar_signals_size() != in.scalars_size() || in.scalars_size() > kScalarsMax)
    return Refuse("report.scalars", std::to_string(in.scalars_size()) + " values for " +
                                        std::to_string(in.scalar_signals_size()) + " signals",
                  "one each, at most " + std::to_string(kScalarsMax));
  uint64_t seen = 0;  // One bit a signal.
  for (int i = 0; i < in.scalars_size(); ++i) {
    const uint32_t number = in.scalar_signals(i);
    const auto signal = static_cast<Signal>(std::min<uint32_t>(number, 0xFF));
    if (number == 0 || model::IsArray(signal))
      return Refuse("report.scalar_signals", std::to_string(number), "the number of a scalar signal");
    if (!model::IsScalar(signal)) {
      ++*unknown_signals;
      continue;
    }
    if (seen & (uint64_t{1} << number))
      return Refuse("report.scalar_signals", std::string(model::SignalName(signal)) + " named twice", "each once");
    seen |= uint64_t{1} << number;
    out->SetScalar(signal, in.scalars(i));
  }
  return absl::OkStatus();
}

size_t ValuesMax(model::Shape shape) {
  switch (shape) {
    case model::Shape::kLayer: return model::kLayersMax;
    case model::Shape::kBoundary: return model::kLayersMax + 1;
    case model::Shape::kRankDigest: return model::kRankDigestFields * model::kRankSlotsMax;
    default: return kLayerHeadsMax;
  }
}

absl::Status ArrayFromWire(const v1::SignalValues& in, uint64_t* seen, model::Report* out, uint64_t* unknown_signals) {
  const auto signal = static_cast<Signal>(std::min<uint32_t>(in.signal(), 0xFF));
  if (in.signal() == 0 || model::IsScalar(signal))
    return Refuse("report.arrays.signal", std::to_string(in.signal()), "the number of an array signal");
  const model::SignalInfo* info = model::FindSignal(signal);
  if (info == nullptr) {
    ++*unknown_signals;
    return absl::OkStatus();
  }
  const std::string name(info->name);
  if (*seen & (uint64_t{1} << in.signal())) return Refuse("report.arrays", name + " named twice", "each once");
  *seen |= uint64_t{1} << in.signal();
  const size_t bytes = in.values().size(), bytes_max = ValuesMax(info->shape) * sizeof(float);
  if (bytes % sizeof(float) != 0 || bytes > bytes_max)
    return Refuse("report.arrays." + name, std::to_string(bytes) + " bytes",
                  "a multiple of 4 up to " + std::to_string(bytes_max));
  std::vector<float>& values = out->MutableArray(signal);
  values.resize(bytes / sizeof(float));
  if (bytes > 0) std::memcpy(values.data(), in.values().data(), bytes);  // Both sides are little-endian (base/bytes.h).
  return absl::OkStatus();
}

absl::Status UserFromWire(const v1::Report& in, model::Report* out) {
  if (in.user_names_size() != in.user_values_size() || in.user_names_size() > kUserScalarsMax)
    return Refuse("report.user_values", std::to_string(in.user_values_size()) + " values for " +
                                            std::to_string(in.user_names_size()) + " names",
                  "one each, at most " + std::to_string(kUserScalarsMax));
  out->user.reserve(in.user_names_size());
  for (int i = 0; i < in.user_names_size(); ++i) {
    const std::string& name = in.user_names(i);
    if (!model::IsValidName(name))
      return Refuse("report.user_names", Quoted(name), "1 to 128 of A-Z a-z 0-9 . _ : -");
    if (std::any_of(out->user.begin(), out->user.end(), [&](const auto& each) { return each.first == name; }))
      return Refuse("report.user_names", Quoted(name) + " twice", "each once");
    out->user.emplace_back(name, in.user_values(i));
  }
  return absl::OkStatus();
}

absl::Status LocalClipsFromWire(const v1::LocalClips& in, const model::ModelSpec& spec, model::LocalClips* out) {
  out->boundary = in.boundary();
  out->ledger_version_before = in.ledger_version_before();
  out->ledger_version_after = in.ledger_version_after();
  return First({CheckCount("report.local_clips.boundary", in.boundary(), 0, kCountMax),
                CheckCount("report.local_clips.ledger_version_before", in.ledger_version_before(), 0, kCountMax),
                CheckCount("report.local_clips.ledger_version_after", in.ledger_version_after(),
                           std::min(in.ledger_version_before(), kCountMax), kCountMax),
                FromWire("report.local_clips.applied", in.applied(), spec, kDeltaTicksMax, &out->applied)});
}

// Registers of a client: a mirror of them is what orders are made from, so what it cannot hold is refused.
absl::Status RegistersFromWire(const v1::Hello& in, std::vector<model::RegisterReading>* out) {
  const char* field = "hello.registers";
  if (static_cast<uint32_t>(in.registers_size()) > remedy::kRegistersMax)
    return Refuse(field, std::to_string(in.registers_size()) + " entries",
                  "at most " + std::to_string(remedy::kRegistersMax));
  out->reserve(static_cast<size_t>(in.registers_size()));
  for (const v1::RegisterReading& each : in.registers()) {
    const std::string name = std::string(field) + "[" + std::to_string(each.id()) + "]";
    if (each.id() >= remedy::kRegistersMax)
      return Refuse(std::string(field) + ".id", std::to_string(each.id()),
                    "below " + std::to_string(remedy::kRegistersMax));
    if (!out->empty() && each.id() <= out->back().id)
      return Refuse(std::string(field) + ".id", std::to_string(each.id()) + " after " +
                                                    std::to_string(out->back().id), "ids in order, each once");
    if (const absl::Status s = First({CheckNumber((name + ".from").c_str(), each.from(), 0, kRegisterValueMax),
                                      CheckNumber((name + ".to").c_str(), each.to(), 0, kRegisterValueMax),
                                      CheckStep((name + ".first_boundary").c_str(), each.first_boundary())});
        !s.ok())
      return s;
    out->push_back({.id = each.id(), .from = each.from(), .to = each.to(), .first = each.first_boundary(),
                    .ramp = each.ramp_boundaries(), .version = each.version()});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRunName(const std::string& field, const std::string& run) {
  if (model::IsValidName(run)) return absl::OkStatus();
  return Refuse(field, Quoted(run), "1 to 128 of A-Z a-z 0-9 . _ : -");
}

absl::Status FromWire(const v1::Hello& in, model::Hello* out) {
  *out = model::Hello();
  out->run = in.run();
  out->epoch = in.epoch();
  out->boundary = in.boundary();
  out->ledger_version = in.ledger_version();
  out->tau_min = in.tau_min();
  out->attn_logit = {FromWire(in.attn_logit().kind()), in.attn_logit().scaled(), in.attn_logit().masked(),
                     in.attn_logit().with_bias(), in.attn_logit().pre_cap()};
  out->world_size = std::max(1u, in.world_size());  // Absent: one rank.
  out->rank = in.rank();
  out->agreement_lag = in.agreement_lag();
  out->client_version = base::CleanText(in.client_version(), kTokenBytesMax);
  out->framework = base::CleanText(in.framework(), kTokenBytesMax);
  out->first_sequence = std::max<uint64_t>(1, in.first_sequence());  // Absent: all.
  if (in.grad_norm_convention() == "clipped" || in.grad_norm_convention() == "unclipped")
    out->grad_norm_convention = in.grad_norm_convention();
  if (in.allow_size() > kAllowMax)
    return Refuse("hello.allow", std::to_string(in.allow_size()) + " kinds", "at most " + std::to_string(kAllowMax));
  for (const std::string& token : in.allow())  // A newer client's kinds are none that this daemon could order.
    if (model::InterventionKindOf(token)) out->allow.push_back(token);
  if (in.last_outcomes_size() > kOutcomesMax)
    return Refuse("hello.last_outcomes", std::to_string(in.last_outcomes_size()) + " entries",
                  "at most " + std::to_string(kOutcomesMax));
  for (const v1::OrderOutcome& each : in.last_outcomes())
    if (const absl::Status s = OutcomeFromWire("hello.last_outcomes", each.order_id(), each.outcome(), each.reason(),
                                               &out->last_outcomes.emplace_back());
        !s.ok())
      return s;
  return First({CheckCount("hello.protocol_version", in.protocol_version(), kProtocolVersion, kProtocolVersion),
                CheckRunName("hello.run", in.run()),
                IdFromWire("hello.attempt", in.attempt(), &out->attempt),
                CheckCount("hello.boundary", in.boundary(), 0, kCountMax),
                CheckCount("hello.ledger_version", in.ledger_version(), 0, kCountMax),
                CheckCount("hello.first_sequence", in.first_sequence(), 0, kCountMax),
                CheckNumber("hello.tau_min", in.tau_min(), 0, 1e9),
                CheckCount("hello.world_size", out->world_size, 1, kWorldSizeMax),
                CheckCount("hello.rank", in.rank(), 0, out->world_size - 1),
                CheckCount("hello.agreement_lag", in.agreement_lag(), 0, kLagMax),
                FromWire(in.model(), &out->model),
                FromWire("hello.ledger", in.ledger(), out->model, kReadingTicksMax, &out->ledger),
                RegistersFromWire(in, &out->registers)});
}

absl::Status FromWire(const v1::Report& in, const model::ModelSpec& spec, model::Report* out,
                      uint64_t* unknown_signals) {
  out->Clear();
  out->sequence = in.sequence();
  out->epoch = in.epoch();
  out->boundary = in.boundary();
  out->step = in.step();
  out->ledger_version = in.ledger_version();
  out->step_time_ms = in.step_time_ms();
  out->dropped_hot = in.dropped_hot();
  out->dropped_unacked = in.dropped_unacked();
  out->attn_logit_kind = FromWire(in.attn_logit_kind());
  if (in.arrays_size() > kArraysMax)
    return Refuse("report.arrays", std::to_string(in.arrays_size()) + " signals",
                  "at most " + std::to_string(kArraysMax));
  uint64_t seen = 0;  // One bit a signal.
  for (const v1::SignalValues& each : in.arrays())
    if (const absl::Status s = ArrayFromWire(each, &seen, out, unknown_signals); !s.ok()) return s;
  return First({CheckCount("report.sequence", in.sequence(), 1, kCountMax),
                CheckCount("report.boundary", in.boundary(), 0, kCountMax), CheckStep("report.step", in.step()),
                CheckCount("report.ledger_version", in.ledger_version(), 0, kCountMax),
                CheckNumber("report.step_time_ms", in.step_time_ms(), 0, 1e12),
                CheckCount("report.dropped_hot", in.dropped_hot(), 0, kCountMax),
                CheckCount("report.dropped_unacked", in.dropped_unacked(), 0, kCountMax),
                ScalarsFromWire(in, out, unknown_signals), UserFromWire(in, out),
                LocalClipsFromWire(in.local_clips(), spec, &out->local_clips)});
}

absl::Status FromWire(const v1::Ack& in, const model::ModelSpec& spec, model::Ack* out) {
  *out = model::Ack();
  out->boundary = in.boundary();
  out->step = in.step();
  out->ledger_version_before = in.ledger_version_before();
  out->ledger_version_after = in.ledger_version_after();
  out->state_digest = in.state_digest();
  return First({OutcomeFromWire("ack", in.order_id(), in.outcome(), in.reason(), out),
                CheckCount("ack.boundary", in.boundary(), 0, kCountMax), CheckStep("ack.step", in.step()),
                CheckCount("ack.ledger_version_before", in.ledger_version_before(), 0, kCountMax),
                CheckCount("ack.ledger_version_after", in.ledger_version_after(),
                           std::min(in.ledger_version_before(), kCountMax), kCountMax),
                FromWire("ack.applied", in.applied(), spec, kDeltaTicksMax, &out->applied)});
}

std::optional<model::Mode> FromWire(v1::Mode in) {
  switch (in) {
    case v1::OBSERVE: return model::Mode::kObserve;
    case v1::ADVISE: return model::Mode::kAdvise;
    case v1::ACT: return model::Mode::kAct;
    default: return std::nullopt;
  }
}

namespace {

constexpr int kExportSignalsMax = 256;

template <class Request, class Query>
absl::Status StepsOf(const Request& in, Query* out) {
  if (in.has_from_step()) out->from_step = in.from_step();
  if (in.has_to_step()) out->to_step = in.to_step();
  if (out->from_step && out->to_step && *out->from_step > *out->to_step)
    return Refuse("to_step", std::to_string(*out->to_step), "at least from_step = " + std::to_string(*out->from_step));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<policy::Proposal> FromWire(const v1::ProposeRequest& in) {
  if (in.kind() < v1::QK_CLIP || in.kind() > v1::COLLECT)
    return Refuse("kind", std::to_string(in.kind()), "a kind of intervention");
  policy::Proposal out;
  out.kind = static_cast<model::InterventionKind>(in.kind());
  if (in.has_warmup_end_step()) out.warmup_end = in.warmup_end_step();
  if (in.has_alpha()) out.alpha = in.alpha();
  if (in.has_beta()) out.beta = in.beta();
  if (in.has_ramp_boundaries()) out.ramp = in.ramp_boundaries();
  if (in.has_scale()) out.scale = in.scale();
  if (in.has_for_boundaries()) out.for_boundaries = in.for_boundaries();
  if (in.has_max_norm()) out.max_norm = in.max_norm();
  if (in.has_at_step()) out.at_step = in.at_step();
  if (std::string wrong = policy::CheckProposal(out); !wrong.empty()) return absl::InvalidArgumentError(wrong);
  return out;
}

absl::StatusOr<engine::SeriesQuery> FromWire(const v1::GetSeriesRequest& in) {
  engine::SeriesQuery out;
  out.run = in.run();
  const model::SignalInfo* info = model::FindSignal(std::string_view(in.signal()));
  if (info != nullptr) {
    out.signal = info->signal;
  } else if (model::IsValidName(in.signal())) {
    out.user_name = in.signal();
  } else {
    return Refuse("signal", Quoted(in.signal()), "the name of a signal or of a user scalar");
  }
  const bool scalar = info == nullptr || info->shape == model::Shape::kScalar;
  if (scalar && (in.has_layer() || in.has_head()))
    return Refuse("layer or head", "given", "none: " + in.signal() + " is one value a step");
  if (in.has_head() && (info->shape == model::Shape::kLayer || info->shape == model::Shape::kBoundary))
    return Refuse("head", "given", "none: " + in.signal() + " is one value a layer");
  if (in.has_head() && !in.has_layer())
    return Refuse("layer", "absent", "the layer of head " + std::to_string(in.head()));
  if (in.points_max() == 1) return Refuse("points_max", "1", "0 for all, or at least 2");
  out.points_max = in.points_max();
  if (in.has_layer()) out.layer = in.layer();
  if (in.has_head()) out.head = in.head();
  if (absl::Status steps = StepsOf(in, &out); !steps.ok()) return steps;
  return out;
}

absl::StatusOr<engine::ReportQuery> FromWire(const v1::ExportRequest& in) {
  engine::ReportQuery out;
  out.run = in.run();
  if (in.signals_size() > kExportSignalsMax)
    return Refuse("signals", std::to_string(in.signals_size()) + " names", "at most " +
                                                                              std::to_string(kExportSignalsMax));
  for (const std::string& name : in.signals())
    if (!model::IsValidName(name)) return Refuse("signals", Quoted(name), "the name of a signal or of a user scalar");
  if (absl::Status steps = StepsOf(in, &out); !steps.ok()) return steps;
  return out;
}

}  // namespace gyrostat::rpc
