// Every enumerator's token in one table each; both directions read the same table.
#include <span>
#include <string>
#include <utility>

#include "model/finding.h"
#include "model/intervention.h"
#include "model/model_spec.h"

namespace gyrostat::model {
namespace {

template <class E>
using Table = std::span<const std::pair<E, const char*>>;

template <class E>
const char* TokenIn(Table<E> table, E value) {
  for (const auto& [each, token] : table)
    if (each == value) return token;
  return "";
}

template <class E>
std::optional<E> ValueIn(Table<E> table, const std::string& token) {
  for (const auto& [each, name] : table)
    if (name == token) return each;
  return std::nullopt;
}

constexpr std::pair<Attention, const char*> kAttention[] = {
    {Attention::kMha, "mha"}, {Attention::kGqa, "gqa"}, {Attention::kMqa, "mqa"}, {Attention::kMla, "mla"}};
constexpr std::pair<NormPlacement, const char*> kNormPlacement[] = {
    {NormPlacement::kPost, "post"}, {NormPlacement::kPre, "pre"}, {NormPlacement::kPeri, "peri"},
    {NormPlacement::kReordered, "reordered"}, {NormPlacement::kDeepnorm, "deepnorm"}, {NormPlacement::kMix, "mix"},
    {NormPlacement::kHybrid, "hybrid"}, {NormPlacement::kLayernormScaling, "layernorm_scaling"},
    {NormPlacement::kResidualDual, "residual_dual"}, {NormPlacement::kKeel, "keel"}};
constexpr std::pair<NormKind, const char*> kNormKind[] = {
    {NormKind::kLayernorm, "layernorm"}, {NormKind::kRmsnorm, "rmsnorm"}};
constexpr std::pair<NormGain, const char*> kNormGain[] = {
    {NormGain::kPlain, "plain"}, {NormGain::kUnitOffset, "unit_offset"}};
constexpr std::pair<QkNorm, const char*> kQkNorm[] = {
    {QkNorm::kNone, "none"}, {QkNorm::kPerHead, "per_head"}, {QkNorm::kFlattened, "flattened"}};
constexpr std::pair<ScheduleKind, const char*> kScheduleKind[] = {
    {ScheduleKind::kConst, "const"}, {ScheduleKind::kLinear, "linear"}, {ScheduleKind::kCosine, "cosine"},
    {ScheduleKind::kWsd, "wsd"}, {ScheduleKind::kNoam, "noam"}};
constexpr std::pair<LogitKind, const char*> kLogitKind[] = {
    {LogitKind::kExact, "exact"}, {LogitKind::kLseUpper, "lse_upper"},
    {LogitKind::kSampledLower, "sampled_lower"}, {LogitKind::kNormProduct, "norm_product"}};
constexpr std::pair<Severity, const char*> kSeverity[] = {
    {Severity::kInfo, "info"}, {Severity::kWarning, "warning"}, {Severity::kCritical, "critical"}};
constexpr std::pair<InterventionKind, const char*> kKind[] = {
    {InterventionKind::kQkClip, "qk_clip"}, {InterventionKind::kWarmupExtension, "warmup_extension"},
    {InterventionKind::kDeepnormAlpha, "deepnorm_alpha"}, {InterventionKind::kLrScale, "lr_scale"},
    {InterventionKind::kGradClip, "grad_clip"}, {InterventionKind::kSkipStep, "skip_step"},
    {InterventionKind::kCheckpoint, "checkpoint"}, {InterventionKind::kRollback, "rollback"},
    {InterventionKind::kHalt, "halt"}, {InterventionKind::kCollect, "collect"}};
constexpr std::pair<Mode, const char*> kMode[] = {
    {Mode::kObserve, "observe"}, {Mode::kAdvise, "advise"}, {Mode::kAct, "act"}};
constexpr std::pair<ClipVariant, const char*> kVariant[] = {
    {ClipVariant::kMha, "mha"}, {ClipVariant::kGroupMin, "group_min"}, {ClipVariant::kQOnly, "q_only"},
    {ClipVariant::kMla, "mla"}, {ClipVariant::kLayerGain, "layer_gain"}};
constexpr std::pair<ClipWhere, const char*> kWhere[] = {{ClipWhere::kRemote, "remote"}, {ClipWhere::kLocal, "local"}};
constexpr std::pair<InterventionState, const char*> kState[] = {
    {InterventionState::kProposed, "proposed"}, {InterventionState::kApproved, "approved"},
    {InterventionState::kSent, "sent"}, {InterventionState::kApplied, "applied"},
    {InterventionState::kJudged, "judged"}, {InterventionState::kRefused, "refused"},
    {InterventionState::kVoid, "void"}, {InterventionState::kExpired, "expired"},
    {InterventionState::kSuperseded, "superseded"}, {InterventionState::kForeign, "foreign"},
    {InterventionState::kLost, "lost"}, {InterventionState::kRejected, "rejected"},
    {InterventionState::kWithdrawn, "withdrawn"}};
constexpr std::pair<Outcome, const char*> kOutcome[] = {
    {Outcome::kEffective, "effective"}, {Outcome::kIneffective, "ineffective"},
    {Outcome::kHarmful, "harmful"}, {Outcome::kInconclusive, "inconclusive"}};
constexpr std::pair<AckOutcome, const char*> kAckOutcome[] = {
    {AckOutcome::kApplied, "applied"}, {AckOutcome::kRefused, "refused"}, {AckOutcome::kVoid, "void"},
    {AckOutcome::kExpired, "expired"}, {AckOutcome::kForeign, "foreign"}, {AckOutcome::kFailed, "failed"}};

}  // namespace

const char* Token(Attention v) { return TokenIn<Attention>(kAttention, v); }
const char* Token(NormPlacement v) { return TokenIn<NormPlacement>(kNormPlacement, v); }
const char* Token(NormKind v) { return TokenIn<NormKind>(kNormKind, v); }
const char* Token(NormGain v) { return TokenIn<NormGain>(kNormGain, v); }
const char* Token(QkNorm v) { return TokenIn<QkNorm>(kQkNorm, v); }
const char* Token(ScheduleKind v) { return TokenIn<ScheduleKind>(kScheduleKind, v); }
const char* Token(LogitKind v) { return TokenIn<LogitKind>(kLogitKind, v); }
const char* Token(Severity v) { return TokenIn<Severity>(kSeverity, v); }
const char* Token(InterventionKind v) { return TokenIn<InterventionKind>(kKind, v); }
const char* Token(Mode v) { return TokenIn<Mode>(kMode, v); }
const char* Token(ClipVariant v) { return TokenIn<ClipVariant>(kVariant, v); }
const char* Token(ClipWhere v) { return TokenIn<ClipWhere>(kWhere, v); }
const char* Token(InterventionState v) { return TokenIn<InterventionState>(kState, v); }
const char* Token(Outcome v) { return TokenIn<Outcome>(kOutcome, v); }
const char* Token(AckOutcome v) { return TokenIn<AckOutcome>(kAckOutcome, v); }

Attention AttentionOf(const std::string& t) { return ValueIn<Attention>(kAttention, t).value_or(Attention::kUnknown); }
NormPlacement NormPlacementOf(const std::string& t) {
  return ValueIn<NormPlacement>(kNormPlacement, t).value_or(NormPlacement::kUnknown);
}
NormKind NormKindOf(const std::string& t) { return ValueIn<NormKind>(kNormKind, t).value_or(NormKind::kUnknown); }
NormGain NormGainOf(const std::string& t) { return ValueIn<NormGain>(kNormGain, t).value_or(NormGain::kUnknown); }
QkNorm QkNormOf(const std::string& t) { return ValueIn<QkNorm>(kQkNorm, t).value_or(QkNorm::kUnknown); }
ScheduleKind ScheduleKindOf(const std::string& t) {
  return ValueIn<ScheduleKind>(kScheduleKind, t).value_or(ScheduleKind::kUnknown);
}
LogitKind LogitKindOf(const std::string& t) { return ValueIn<LogitKind>(kLogitKind, t).value_or(LogitKind::kUnknown); }
std::optional<InterventionKind> InterventionKindOf(const std::string& t) { return ValueIn<InterventionKind>(kKind, t); }
std::optional<Mode> ModeOf(const std::string& t) { return ValueIn<Mode>(kMode, t); }
std::optional<ClipVariant> ClipVariantOf(const std::string& t) { return ValueIn<ClipVariant>(kVariant, t); }
std::optional<ClipWhere> ClipWhereOf(const std::string& t) { return ValueIn<ClipWhere>(kWhere, t); }

bool IsOpen(InterventionState v) {
  return v == InterventionState::kProposed || v == InterventionState::kApproved || v == InterventionState::kSent ||
         v == InterventionState::kApplied;
}

}  // namespace gyrostat::model
