#include "remedy/qk_clip.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>

namespace gyrostat::remedy {
namespace {

using model::Attention;
using model::ClipVariant;
using model::LogitKind;
using model::QkNorm;

std::string Text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

std::string HeadName(uint32_t layer, uint32_t head) {
  return "head L" + std::to_string(layer) + " H" + std::to_string(head);
}

const char* KindName(LogitKind kind) { return kind == LogitKind::kUnknown ? "unknown" : model::Token(kind); }

std::string CheckKind(LogitKind kind) {
  if (kind == LogitKind::kExact || kind == LogitKind::kLseUpper) return {};
  return std::string("the attention maxima are of kind ") + KindName(kind) + ", wanted exact or lse_upper";
}

// The share of `delta` that W_q takes: `split` of it, rounded up to a whole tick; the rest is W_k's.
Ticks QueryTicks(Ticks delta, double split) {
  if (split >= 1) return delta;
  if (split <= 0) return 0;
  // A product with a power of two is exact, so the share is an integer before any rounding could differ.
  constexpr int kShareBits = 20;
  const auto share = static_cast<Ticks>(split * (1 << kShareBits));
  static_assert(ClipLedger::kLambdaMax <= INT64_MAX >> kShareBits);
  return (delta * share + (1 << kShareBits) - 1) >> kShareBits;
}

// Never 0, which would erase the head.
float Factor(Ticks ticks) {
  return std::max(static_cast<float>(ExpMinus(ticks)), std::numeric_limits<float>::min());
}

std::string CheckGroups(const model::ModelSpec& spec) {
  const std::string name = model::Token(spec.attention);
  const bool divides = spec.kv_heads != 0 && spec.heads % spec.kv_heads == 0;
  switch (spec.attention) {
    case Attention::kMha:
      if (spec.KvHeads() == spec.heads) return {};
      return "attention is mha with " + std::to_string(spec.kv_heads) + " key heads, wanted " +
             std::to_string(spec.heads);
    case Attention::kGqa:
      if (divides) return {};
      return "attention is gqa with " + std::to_string(spec.kv_heads) + " key heads, wanted a divisor of " +
             std::to_string(spec.heads);
    case Attention::kMqa:
      if (spec.kv_heads == 1) return {};
      return "attention is mqa with " + std::to_string(spec.kv_heads) + " key heads, wanted 1";
    case Attention::kMla:
      if (spec.qk_norm == QkNorm::kNone) return {};
      return std::string("attention is mla with qk_norm ") + model::Token(spec.qk_norm) +
             ", which nobody knows how to clip, wanted qk_norm none";
    case Attention::kUnknown:
      break;
  }
  return "the model does not say which attention it has, wanted mha, gqa, mqa or mla";
}

std::string CheckTerms(const model::Order& order, const ClipShape& shape, double tau_min) {
  if (order.kind != model::InterventionKind::kQkClip)
    return std::string("the order is a ") + model::Token(order.kind) + ", wanted qk_clip";
  const bool stops = order.where == model::ClipWhere::kLocal && order.tau == 0;
  if (!stops && !(std::isfinite(order.tau) && order.tau > 0))
    return "tau is " + Text(order.tau) + ", wanted a finite number above 0";
  if (!stops && order.tau < tau_min)
    return "tau is " + Text(order.tau) + ", below this job's tau_min of " + Text(tau_min);
  if (order.variant != shape.variant)
    return std::string("variant is ") + model::Token(order.variant) + ", wanted " + model::Token(shape.variant) +
           " for this attention";
  if (order.split != shape.split) return "split is " + Text(order.split) + ", wanted " + Text(shape.split);
  return {};
}

// One entry against what was measured: `measured` under `lambda`.
std::string CheckEntry(const model::ClipEntry& entry, float measured, Ticks lambda, double tau) {
  const std::string name = HeadName(entry.layer, entry.head);
  if (std::bit_cast<uint32_t>(entry.reported_max) != std::bit_cast<uint32_t>(measured))
    return name + ": the order says a maximum of " + Text(entry.reported_max) + ", wanted the measured " +
           Text(measured);
  const std::optional<Ticks> target = ClipTarget(measured, tau, lambda);
  if (!target) return name + ": the maximum is " + Text(measured) + ", wanted a finite number above tau " + Text(tau);
  if (entry.target_ticks < lambda || entry.target_ticks - lambda > kClipTicksMax)
    return name + ": the target is " + std::to_string(entry.target_ticks) + " ticks, wanted between the ledger's " +
           std::to_string(lambda) + " at the basis and ln 10 more, " + std::to_string(lambda + kClipTicksMax);
  // Half a percent of what is asked for (protocol.md §8): less than a head grows in a step.
  const Ticks off = entry.target_ticks > *target ? entry.target_ticks - *target : *target - entry.target_ticks;
  if (off * 200 > *target - lambda)
    return name + ": the target is " + std::to_string(entry.target_ticks) + " ticks, more than 0.5 % away from " +
           std::to_string(*target) + ", which basis, tau and maximum give";
  return {};
}

}  // namespace

std::optional<double> Gamma(double max_logit, double tau) {
  if (!std::isfinite(max_logit) || !std::isfinite(tau) || tau <= 0) return std::nullopt;
  return max_logit > tau ? tau / max_logit : 1.0;
}

std::optional<Ticks> ClipTarget(double max_logit, double tau, Ticks lambda_at_forward) {
  if (!std::isfinite(max_logit) || !(tau > 0) || !(max_logit > tau)) return std::nullopt;
  const double ratio = max_logit / tau;
  return lambda_at_forward + (ratio >= 10 ? kClipTicksMax : std::min(LnTicks(ratio), kClipTicksMax));
}

double ClipThreshold(double tau, ClipVariant variant, bool master_fp32) {
  if (master_fp32) return tau;
  // 0.99 is 1 / 1.01: once where W_q takes all, twice where W_q and W_k share. (fp16 would bear 0.998, but the compute
  // type that a job declares is not always the type of its weights.)
  return tau * (variant == ClipVariant::kQOnly ? 1.01 : 1.02);
}

std::optional<ClipShape> ShapeFor(const model::ModelSpec& spec, ClipVariant wanted, std::string* why) {
  ClipShape shape{.layers = spec.layers, .heads = spec.heads, .kv_heads = spec.KvHeads()};
  const bool grouped = spec.attention == Attention::kGqa || spec.attention == Attention::kMqa;
  const auto refuse = [why](std::string reason) {
    *why = std::move(reason);
    return std::nullopt;
  };
  if (spec.layers == 0 || spec.layers > model::kLayersMax || spec.heads == 0 || spec.heads > model::kHeadsMax)
    return refuse("the model has " + std::to_string(spec.layers) + " layers and " + std::to_string(spec.heads) +
                  " heads, wanted both known and at most " + std::to_string(model::kLayersMax));
  if (spec.qk_norm == QkNorm::kUnknown)
    return refuse("the model does not say whether queries and keys are normalized, wanted qk_norm none, per_head or "
                  "flattened");
  if (std::string trouble = CheckGroups(spec); !trouble.empty()) return refuse(std::move(trouble));
  if (spec.attention == Attention::kMla) {
    shape.variant = ClipVariant::kMla;
    shape.kv_heads = shape.heads;  // Each head has a key of its own, but for the shared rotary part.
  } else if (spec.qk_norm == QkNorm::kPerHead) {
    shape.variant = ClipVariant::kLayerGain;
  } else if (grouped) {
    if (wanted != ClipVariant::kGroupMin && wanted != ClipVariant::kQOnly)
      return refuse(std::string("variant ") + model::Token(wanted) +
                    " cannot clip grouped keys, wanted group_min or q_only");
    shape.variant = wanted;
  }
  shape.split = shape.variant == ClipVariant::kQOnly ? 1.0 : 0.5;
  return shape;
}

uint32_t ClipShape::GroupHeads() const {
  if (variant == ClipVariant::kLayerGain) return std::max(heads, 1u);
  if (variant == ClipVariant::kMla || kv_heads == 0) return 1;
  return std::max(heads / kv_heads, 1u);
}

bool ClipShape::SharesFactor() const {
  return variant == ClipVariant::kGroupMin || variant == ClipVariant::kLayerGain;
}

std::string CheckMaxima(const model::AttnLogitInfo& info, bool soft_capped) {
  if (std::string why = CheckKind(info.kind); !why.empty()) return why;
  if (!info.scaled) return "the attention maxima are unscaled, wanted what the softmax sees";
  if (!info.masked) return "the attention maxima are unmasked, wanted what the softmax sees";
  if (soft_capped && !info.pre_cap)
    return "the attention maxima are taken after the soft-cap, where they saturate, wanted before";
  return {};
}

void PlanClip(const ClipShape& shape, const std::vector<model::ClipEntry>& entries, const ClipLedger& ledger,
              ClipPlan* plan) {
  plan->q.clear();
  plan->k.clear();
  // Ticks per head, layer-major, in the vector that later holds those above 0.
  std::vector<Ticks>& ticks = plan->charged.ticks;
  ticks.assign(size_t{shape.layers} * shape.heads, 0);
  for (const model::ClipEntry& entry : entries) {
    if (entry.layer >= shape.layers || entry.head >= shape.heads) continue;
    const Ticks target = std::clamp(entry.target_ticks, Ticks{0}, ClipLedger::kLambdaMax);
    Ticks& delta = ticks[size_t{entry.layer} * shape.heads + entry.head];
    delta = std::max(delta, target - ledger.At(entry.layer, entry.head));
  }
  plan->charged.layer.clear();
  plan->charged.head.clear();
  const uint32_t group = shape.GroupHeads();
  size_t kept = 0;
  for (size_t first = 0; first < ticks.size(); first += group) {
    const auto layer = static_cast<uint32_t>(first / shape.heads), head = static_cast<uint32_t>(first % shape.heads);
    const Ticks largest = *std::max_element(ticks.begin() + first, ticks.begin() + first + group);
    if (largest <= 0) continue;
    if (const Ticks rest = largest - QueryTicks(largest, shape.split); rest > 0)
      plan->k.push_back({layer, head / group, Factor(rest)});
    for (uint32_t i = 0; i < group; ++i) {
      const Ticks delta = shape.SharesFactor() ? largest : ticks[first + i];
      if (delta <= 0) continue;
      if (const Ticks part = QueryTicks(delta, shape.split); part > 0)
        plan->q.push_back({layer, head + i, Factor(part)});
      plan->charged.layer.push_back(layer);
      plan->charged.head.push_back(head + i);
      ticks[kept++] = delta;  // Never ahead of what is still to be read.
    }
  }
  ticks.resize(kept);
}

float RopeFactor(float q, float k) {
  // The product of two floats is exact in double: one rounding, nothing to contract.
  return std::max(static_cast<float>(double{q} * double{k}), std::numeric_limits<float>::min());
}

float ScaledUnitOffset(float w, float factor) {
  // f (1 + w) - 1, without adding 1 to a small w.
  const float product = w * factor;
  return product + (factor - 1.0f);
}

std::string Validate(const model::Order& order, const ClipShape& shape, const ClipLedger& ledger,
                     const std::vector<float>& measured_max, const ClipCheck& check) {
  if (std::string why = CheckTerms(order, shape, check.tau_min); !why.empty()) return why;
  if (order.where == model::ClipWhere::kLocal) return {};
  if (std::string why = CheckKind(check.kind); !why.empty()) return why;
  if (ledger.layers() != shape.layers || ledger.heads() != shape.heads)
    return "the ledger has " + std::to_string(ledger.layers()) + " x " + std::to_string(ledger.heads()) +
           " heads, wanted " + std::to_string(shape.layers) + " x " + std::to_string(shape.heads);
  if (measured_max.empty())
    return "the maxima of boundary " + std::to_string(order.basis) + " are not known here any more";
  if (measured_max.size() != size_t{shape.layers} * shape.heads)
    return "the basis has " + std::to_string(measured_max.size()) + " maxima, wanted " +
           std::to_string(size_t{shape.layers} * shape.heads);
  if (order.entries.empty()) return "the order names no head, wanted at least one";
  const model::ClipEntry* last = nullptr;
  for (const model::ClipEntry& entry : order.entries) {
    if (entry.layer >= shape.layers || entry.head >= shape.heads)
      return HeadName(entry.layer, entry.head) + " is foreign, wanted layers below " + std::to_string(shape.layers) +
             " and heads below " + std::to_string(shape.heads);
    if (last != nullptr && last->layer == entry.layer && last->head == entry.head)
      return HeadName(entry.layer, entry.head) + " is named twice, wanted each head once";
    if (last != nullptr && (last->layer > entry.layer || (last->layer == entry.layer && last->head > entry.head)))
      return HeadName(entry.layer, entry.head) + " is out of order, wanted entries in order of layer and head";
    last = &entry;
    const std::optional<Ticks> lambda = ledger.At(check.basis_version, entry.layer, entry.head);
    if (!lambda)
      return "the ledger at version " + std::to_string(check.basis_version) + " is not known any more, it stands at " +
             std::to_string(ledger.version());
    const float measured = measured_max[size_t{entry.layer} * shape.heads + entry.head];
    if (std::string why = CheckEntry(entry, measured, *lambda, order.tau); !why.empty()) return why;
  }
  return {};
}

}  // namespace gyrostat::remedy
