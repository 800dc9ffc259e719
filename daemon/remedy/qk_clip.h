// QK-Clip (Kimi K2, arXiv 2507.20534 §2.1 and App. D): the arithmetic of targets, factors and bounds, for MHA, GQA/MQA,
// MLA, and attention behind a query-key norm. Source of every rule here: protocol.md §1 and methods.md §2.
//
// What the factors of a head are put on:
//   plain attention       its rows of W_q and W_k, and of their biases.
//   flattened norm        its slices of the norms' gains, and biases: behind the norm the rows do nothing right.
//   per-head norm         the layer's two gains, which all heads share: one factor each for the layer (kLayerGain).
//   MLA                   q and k factors on the rows without rotary embedding; its rotary query rows take RopeFactor;
//                         the rotary key, which all heads share, none.
//
// Pure; thread-safe; no allocation but in the vectors and strings it is given or returns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/intervention.h"
#include "model/model_spec.h"
#include "model/report.h"
#include "remedy/clip_ledger.h"

namespace gyrostat::remedy {

// gamma = tau / max(S, tau): in (0, 1], 1 where S is not above tau. Nothing where S is not finite: never clip then.
// Nothing either unless tau is finite and above 0.
std::optional<double> Gamma(double max_logit, double tau);

// Λ* = λ@t + min(ln(S/tau), ln 10) (protocol.md §1.4); nothing unless S is finite and above tau > 0.
std::optional<Ticks> ClipTarget(double max_logit, double tau, Ticks lambda_at_forward);

// The S above which a head is clipped: tau, or a little more where the weights have no fp32 master, since a factor
// nearer to 1 than 0.99 is lost in the rounding of bf16 (protocol.md §1.7).
double ClipThreshold(double tau, model::ClipVariant variant, bool master_fp32);

// The variant and split for an attention kind: mha takes kMha, ½; gqa and mqa take `wanted` (kGroupMin ½ or kQOnly 1);
// mla takes kMla, ½; whatever stands behind a per-head norm takes kLayerGain, ½.
struct ClipShape {
  model::ClipVariant variant = model::ClipVariant::kMha;
  double split = 0.5;
  uint32_t layers = 0, heads = 0, kv_heads = 0;

  // Query heads on one K factor: of a key head, of the layer (kLayerGain), or one (kMla). At least 1.
  uint32_t GroupHeads() const;
  // Whether all heads of such a group shrink together.
  bool SharesFactor() const;
};
// Nothing where the model does not say enough to know, or nobody knows how (a norm behind MLA); `*why` then says so.
std::optional<ClipShape> ShapeFor(const model::ModelSpec& spec, model::ClipVariant wanted, std::string* why);

// Whether maxima made like this may be clipped from: exact or lse_upper, of what the softmax really sees (scaled,
// masked, and before the cap where there is one). Empty, or the sentence that says why not.
std::string CheckMaxima(const model::AttnLogitInfo& info, bool soft_capped);

// One factor for the rows of one head of a projection.
struct HeadFactor {
  uint32_t layer = 0, head = 0;  // For K factors, `head` counts groups as GroupHeads: key heads, as a rule.
  float factor = 1;              // (0, 1].
};

// What applying entries does at this boundary, given the ledger as it is now.
struct ClipPlan {
  std::vector<HeadFactor> q, k;  // Only factors below 1, in order of layer and head.
  model::LedgerDelta charged;    // Ticks to add: every head whose logits shrink, group mates too. Same order.
};

// delta = max(0, target - lambda) per entry; where a group shares its factor, all its heads take the largest. The split
// is cut in whole ticks, so that the two factors of a head multiply to exp(-delta). `*plan` is overwritten. Entries out
// of range are ignored (Validate refuses them before).
void PlanClip(const ClipShape& shape, const std::vector<model::ClipEntry>& entries, const ClipLedger& ledger,
              ClipPlan* plan);

// What an MLA head's rotary query rows take, given its q and k factors: both, since their key is never scaled. In (0,
// 1].
float RopeFactor(float q, float k);

// A gain that the norm applies as 1 + w, after its effective value was scaled by `factor` in (0, 1]. Rounded twice, so
// that the result is right where w is small; contracting it would change it.
float ScaledUnitOffset(float w, float factor);

// The client's own check (protocol.md §8), against what it measured itself. Empty: the order may be applied. Otherwise
// the refusal: it names what was seen and what was wanted. `measured_max` are the maxima reported for the order's basis
// (layer-major, empty: basis unknown), `basis_version` the ledger version of that forward. Identity and expiry of the
// order are the caller's to check. Of a local order, which has neither basis nor entries, only tau, variant and split
// are judged.
struct ClipCheck {
  double tau_min = 0;
  model::LogitKind kind = model::LogitKind::kUnknown;
  uint64_t basis_version = 0;
};
std::string Validate(const model::Order& order, const ClipShape& shape, const ClipLedger& ledger,
                     const std::vector<float>& measured_max, const ClipCheck& check);

}  // namespace gyrostat::remedy
