#include "client/src/clip_mirror.h"

#include <algorithm>
#include <utility>

#include "client/src/actuator.h"
#include "client/src/job_registers.h"
#include "remedy/qk_clip.h"

namespace gyrostat::client {
namespace {

// How long a measurement may be the basis of an order (protocol.md §1.2): as long as the ledger's own history.
constexpr size_t kBoundariesKept = remedy::ClipLedger::kHistory;

std::string Joined(const std::vector<std::string>& kinds) {
  std::string text;
  for (const std::string& kind : kinds) text += (text.empty() ? "" : ", ") + kind;
  return text.empty() ? "nothing" : text;
}

const char* Name(model::InterventionKind kind) {
  const char* token = model::Token(kind);
  return *token == '\0' ? "an order of a kind unknown here" : token;
}

}  // namespace

ClipMirror::ClipMirror(const Settings* settings, const model::AttemptId& attempt)
    : settings_(settings),
      attempt_(attempt),
      keeps_maxima_(settings->allow_qk_clip && (settings->world_size == 1 || settings->agreement_lag > 0)),
      ledger_(settings->model.layers, settings->model.heads),
      registers_(RegisterBoundsFor(settings->model)) {}

void ClipMirror::OnFrame(const Frame& frame) {
  boundary_ = frame.boundary;
  step_ = frame.step;
  const uint32_t count = frame.Count(model::Signal::kAttnLogitMax);
  while (!measured_.empty() && measured_.front().boundary + kBoundariesKept <= boundary_) measured_.pop_front();
  if (!keeps_maxima_ || count == 0) return;
  const float* maxima = frame.Array(model::Signal::kAttnLogitMax);
  measured_.push_back({frame.boundary, frame.ledger_version, frame.logit_kind, {maxima, maxima + count}});
}

ClipMirror::Verdict ClipMirror::Judge(const model::Order& order) {
  using enum Verdict::Do;
  if (open_.contains(order.id)) return {kIgnore, {}};
  const bool local = order.where == model::ClipWhere::kLocal;
  for (const model::Ack& known : outcomes_)
    if (known.order_id == order.id && !local) return {kAnswer, known};  // Its ack was lost.
  if (std::string why = Foreign(order); !why.empty())
    return {kAnswer, Answer(order, model::AckOutcome::kForeign, std::move(why))};
  if (std::string why = Refusal(order); !why.empty())
    return {kAnswer, Answer(order, model::AckOutcome::kRefused, std::move(why))};
  if (!local && boundary_ > order.expires_boundary)
    return {kAnswer, Answer(order, model::AckOutcome::kExpired,
                            "boundary " + std::to_string(boundary_) + " is past the order's last boundary " +
                                std::to_string(order.expires_boundary))};
  open_.emplace(order.id, order);
  return {kPass, {}};
}

std::string ClipMirror::Foreign(const model::Order& order) const {
  if (order.run != settings_->run) return "the order is for run " + order.run + ", this is run " + settings_->run;
  if (order.attempt != attempt_)
    return "the order is for attempt " + order.attempt.ToHex() + ", this is attempt " + attempt_.ToHex();
  if (order.epoch != epoch_)
    return "the order is for epoch " + std::to_string(order.epoch) + ", the job is in epoch " + std::to_string(epoch_);
  return {};
}

std::string ClipMirror::Refusal(const model::Order& order) const {
  if (failed_) return "an earlier order failed: no more orders are taken before weights and state are restored";
  if (!trouble_.empty()) return trouble_;
  const std::string name = Name(order.kind);
  if (std::find(settings_->allow.begin(), settings_->allow.end(), model::Token(order.kind)) == settings_->allow.end())
    return name + " is not on the job's allow-list, which has " + Joined(settings_->allow);
  // What is measured is one rank's own business.
  const bool alone = order.kind == model::InterventionKind::kCollect;
  if (settings_->world_size > 1 && settings_->agreement_lag == 0 && !alone)
    return name + " needs agreement of ranks, and this client has none for its world of " +
           std::to_string(settings_->world_size) + " ranks";
  if (order.kind == model::InterventionKind::kQkClip) return ClipRefusal(order);
  if (order.sets.empty() || order.sets.size() > remedy::kRegisterSetsMax)
    return name + " sets " + std::to_string(order.sets.size()) + " registers, wanted 1 to " +
           std::to_string(remedy::kRegisterSetsMax);
  return {};
}

std::string ClipMirror::ClipRefusal(const model::Order& order) const {
  std::string why;
  const auto shape = remedy::ShapeFor(settings_->model, order.variant, &why);
  if (!shape) return why;
  static const std::vector<float> kNone;
  const Measured* basis = Find(order.basis);
  model::AttnLogitInfo made = settings_->attn_logit;
  if (basis != nullptr) made.kind = basis->kind;
  if (order.where == model::ClipWhere::kRemote && basis != nullptr)
    if (why = remedy::CheckMaxima(made, settings_->model.logit_softcap.has_value()); !why.empty()) return why;
  const remedy::ClipCheck check{.tau_min = settings_->tau_min,
                                .kind = basis == nullptr ? model::LogitKind::kExact : basis->kind,
                                .basis_version = basis == nullptr ? 0 : basis->ledger_version};
  return remedy::Validate(order, *shape, ledger_, basis == nullptr ? kNone : basis->maxima, check);
}

const ClipMirror::Measured* ClipMirror::Find(model::Boundary boundary) const {
  const auto at = std::find_if(measured_.begin(), measured_.end(),
                               [boundary](const Measured& m) { return m.boundary == boundary; });
  return at == measured_.end() ? nullptr : &*at;
}

model::Ack ClipMirror::NoRoom(const model::Order& order) {
  open_.erase(order.id);
  return Answer(order, model::AckOutcome::kRefused,
                std::to_string(kOrdersQueued) + " orders wait already for the trainer to poll them");
}

model::Ack ClipMirror::Answer(const model::Order& order, model::AckOutcome outcome, std::string reason) {
  model::Ack ack;
  ack.order_id = order.id;
  ack.outcome = outcome;
  ack.boundary = boundary_;
  ack.step = step_;
  ack.ledger_version_before = ack.ledger_version_after = ledger_.version();
  if (reason.size() >= GYRO_REASON_BYTES) reason.resize(GYRO_REASON_BYTES - 1);
  ack.reason = std::move(reason);
  Remember(ack);
  return ack;
}

model::Ack ClipMirror::OnOutcome(const Record& record) {
  model::Ack ack;
  ack.order_id = record.order_id;
  ack.outcome = record.outcome;
  ack.boundary = record.boundary;
  ack.step = record.step;
  ack.ledger_version_before = record.version_before;
  ack.ledger_version_after = record.version_after;
  ack.state_digest = record.digest;
  ack.reason = record.reason;
  failed_ |= record.outcome == model::AckOutcome::kFailed;
  const auto open = open_.find(record.order_id);
  if (open == open_.end()) {  // Answered for the local register, whose own order was answered long ago.
    local_ = {};
  } else {
    const model::Order& order = open->second;
    if (record.outcome == model::AckOutcome::kApplied && order.where == model::ClipWhere::kLocal) {
      local_ = {.order_id = order.id, .tau = order.tau, .variant = order.variant, .split = order.split};
    } else if (record.outcome == model::AckOutcome::kApplied && order.kind != model::InterventionKind::kQkClip) {
      SetAll(order.sets, order.ramp, record.boundary, &registers_);
      Compare(record);
    } else if (record.outcome == model::AckOutcome::kApplied) {
      const remedy::ClipShape shape{.variant = order.variant,
                                    .split = order.split,
                                    .layers = ledger_.layers(),
                                    .heads = ledger_.heads(),
                                    .kv_heads = settings_->model.KvHeads()};
      ack.applied = Repeat(record, shape, order.entries);
    }
    open_.erase(open);
  }
  Remember(ack);
  return ack;
}

void ClipMirror::OnAgreed(const model::Ack& ack) {
  const auto open = open_.find(ack.order_id);
  const bool applied = ack.outcome == model::AckOutcome::kApplied;
  if (open != open_.end() && open->second.where == model::ClipWhere::kLocal && applied) {
    const model::Order& order = open->second;
    local_ = {.order_id = order.id, .tau = order.tau, .variant = order.variant, .split = order.split};
  } else if (open != open_.end() && open->second.kind != model::InterventionKind::kQkClip && applied) {
    SetAll(open->second.sets, open->second.ramp, ack.boundary, &registers_);
  }
  failed_ |= ack.outcome == model::AckOutcome::kFailed;
  Follow(ack.applied, ack.ledger_version_after);
  if (open != open_.end()) open_.erase(open);
  Remember(ack);
}

void ClipMirror::OnAgreedLocal(const model::LocalClips& clips) { Follow(clips.applied, clips.ledger_version_after); }

void ClipMirror::Follow(const model::LedgerDelta& applied, uint64_t version_after) {
  if (applied.size() == 0) return;
  ledger_.Apply(applied);
  if (ledger_.version() != version_after)
    trouble_ = "the sender's copy of the clip ledger is at version " + std::to_string(ledger_.version()) +
               ", the ranks' at " + std::to_string(version_after) + ": no more orders are taken";
}

model::LocalClips ClipMirror::OnLocalClip(const Record& record) {
  model::LocalClips clips{.boundary = record.boundary,
                          .ledger_version_before = record.version_before,
                          .ledger_version_after = record.version_after,
                          .applied = {}};
  const Measured* measured = Find(record.boundary);
  std::vector<model::ClipEntry> entries;
  if (measured != nullptr)
    LocalEntries(measured->maxima, local_, HasMaster(settings_->model), ledger_, ledger_.version(), &entries);
  const remedy::ClipShape shape{.variant = local_.variant,
                                .split = local_.split,
                                .layers = ledger_.layers(),
                                .heads = ledger_.heads(),
                                .kv_heads = settings_->model.KvHeads()};
  clips.applied = Repeat(record, shape, entries);
  return clips;
}

model::LedgerDelta ClipMirror::Repeat(const Record& record, const remedy::ClipShape& shape,
                                      const std::vector<model::ClipEntry>& entries) {
  remedy::ClipPlan plan;
  remedy::PlanClip(shape, entries, ledger_, &plan);
  ledger_.Apply(plan.charged);
  Compare(record);
  return std::move(plan.charged);
}

void ClipMirror::Compare(const Record& record) {
  if (ledger_.version() != record.version_after ||
      StateDigest(*settings_, attempt_, epoch_, ledger_, registers_, local_) != record.digest)
    trouble_ = "the sender's copy of the clip ledger is at version " + std::to_string(ledger_.version()) +
               ", the training thread's at " + std::to_string(record.version_after) +
               ", or it or the registers are of other content: no more orders are taken";
}

void ClipMirror::OnEpoch(const Record& record) {
  epoch_ = record.epoch;
  failed_ = false;  // Whether ranks are equal again is for their digests to show.
  local_ = {};
  measured_.clear();
  if (record.world_size != 0) world_size_ = record.world_size;
  if (record.restored == nullptr) {
    registers_.Reset();
    return ledger_.Reset();
  }
  ledger_.Restore(record.restored->ledger_version, record.restored->ledger);
  std::string why;
  if (!RestoreAll(record.restored->registers, record.restored->boundary, record.boundary, &registers_, &why))
    trouble_ = why;
  outcomes_.clear();
  for (const auto& [id, outcome] : record.restored->outcomes) {
    model::Ack known;
    known.order_id = id;
    known.outcome = outcome;
    Remember(known);
  }
}

void ClipMirror::Remember(const model::Ack& ack) {
  model::Ack brief = ack;
  brief.applied = {};
  outcomes_.push_back(std::move(brief));
  if (outcomes_.size() > kOutcomesKept) outcomes_.pop_front();
}

void ClipMirror::FillHello(model::Hello* hello) const {
  hello->epoch = epoch_;
  hello->boundary = boundary_ + 1;
  if (world_size_ != 0) hello->world_size = world_size_;
  hello->ledger_version = ledger_.version();
  hello->ledger = ledger_.Sparse();
  hello->registers = registers_.Saved();
  hello->last_outcomes.assign(outcomes_.begin(), outcomes_.end());
}

}  // namespace gyrostat::client
