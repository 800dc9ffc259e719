#include "client/src/actuator.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

namespace gyrostat::client {
namespace {

// Room that Poll leaves in the record queue, so that an ack, a failure and a reset always find a slot.
constexpr size_t kRecordsSpare = 16;
static_assert(kRecordsSpare < kRecordsQueued);

constexpr char kOrderingEnded[] =
    "an earlier order failed: no more orders are taken before weights and state are restored";

void CopyReason(std::string_view text, char (*out)[GYRO_REASON_BYTES]) {
  const size_t size = std::min(text.size(), sizeof(*out) - 1);
  text.copy(*out, size);
  (*out)[size] = '\0';
}

void Reserve(size_t heads, size_t keys, remedy::ClipPlan* plan) {
  plan->q.reserve(heads);
  plan->k.reserve(keys);
  plan->charged.layer.reserve(heads);
  plan->charged.head.reserve(heads);
  plan->charged.ticks.reserve(heads);
}

}  // namespace

Actuator::Actuator(const Settings* settings, const model::AttemptId& attempt, OrderQueue* orders, RecordQueue* records,
                   Counters* counters)
    : settings_(settings),
      attempt_(attempt),
      orders_(orders),
      records_(records),
      counters_(counters),
      ledger_(settings->model.layers, settings->model.heads),
      registers_(&settings->model) {
  if (!settings->allow_qk_clip) return;  // Nothing will ever be planned.
  const size_t heads = size_t{settings->model.layers} * settings->model.heads;
  const size_t keys = size_t{settings->model.layers} * settings->model.KvHeads();
  entries_.reserve(heads);
  page_.Reserve(heads, keys);
  Reserve(heads, keys, &plan_);
}

gyro_status Actuator::Poll(const BoundaryView& at, gyro_order* order) {
  if (open_ != Open::kNone) {
    counters_->training.error.Set("gyro_poll was called before the order it gave last was acked");
    return GYRO_STATE;
  }
  if (records_->Room() <= kRecordsSpare) return GYRO_NONE;
  // Local first: its targets stand on the ledger that this boundary's own forward ran under.
  if (planned_local_ != at.boundary) {
    planned_local_ = at.boundary;
    if (PlanLocal(at)) {
      model::Order local;
      local.id = LocalClipId(at.boundary);
      local.basis = local.expires_boundary = at.boundary;
      local.tau = local_.tau;
      open_ = Open::kLocal;
      Present(at, local, true, order);
      return GYRO_OK;
    }
  }
  while (const model::Order* next = orders_->Front()) {
    if (records_->Room() <= kRecordsSpare) return GYRO_NONE;
    if (Consider(at, *next)) {
      open_ = Open::kRemote;
      Present(at, *next, false, order);
      return GYRO_OK;
    }
    orders_->Release();
  }
  return GYRO_NONE;
}

bool Actuator::PlanLocal(const BoundaryView& at) {
  if (!local_.on() || failed_ || hold_[0] != 0 || at.maxima.empty()) return false;
  if (at.kind != model::LogitKind::kExact && at.kind != model::LogitKind::kLseUpper) return false;
  LocalEntries(at.maxima, local_, HasMaster(settings_->model), ledger_, ledger_.version(), &entries_);
  if (entries_.empty()) return false;
  const remedy::ClipShape shape{.variant = local_.variant,
                                .split = local_.split,
                                .layers = ledger_.layers(),
                                .heads = ledger_.heads(),
                                .kv_heads = settings_->model.KvHeads()};
  remedy::PlanClip(shape, entries_, ledger_, &plan_);
  return plan_.charged.size() > 0;
}

bool Actuator::Consider(const BoundaryView& at, const model::Order& order) {
  char reason[GYRO_REASON_BYTES];
  if (order.epoch != epoch_) {
    std::snprintf(reason, sizeof(reason), "the order is for epoch %u, the job is in epoch %u", order.epoch, epoch_);
    return Answer(at, order.id, model::AckOutcome::kForeign, reason), false;
  }
  if (failed_) {
    Answer(at, order.id, model::AckOutcome::kRefused, kOrderingEnded);
    return false;
  }
  if (hold_[0] != 0) {
    Answer(at, order.id, model::AckOutcome::kRefused, hold_);
    return false;
  }
  if (order.where == model::ClipWhere::kLocal) {
    local_ = {.order_id = order.id, .tau = order.tau, .variant = order.variant, .split = order.split};
    Answer(at, order.id, model::AckOutcome::kApplied, order.tau > 0 ? "local clipping is on" : "local clipping is off");
    return false;
  }
  if (at.boundary > order.expires_boundary) {
    std::snprintf(reason, sizeof(reason), "boundary %llu is past the order's last boundary %llu",
                  static_cast<unsigned long long>(at.boundary),
                  static_cast<unsigned long long>(order.expires_boundary));
    return Answer(at, order.id, model::AckOutcome::kExpired, reason), false;
  }
  return order.kind == model::InterventionKind::kQkClip ? ConsiderClip(at, order) : ConsiderSets(at, order);
}

bool Actuator::ConsiderClip(const BoundaryView& at, const model::Order& order) {
  const remedy::ClipShape shape{.variant = order.variant,
                                .split = order.split,
                                .layers = ledger_.layers(),
                                .heads = ledger_.heads(),
                                .kv_heads = settings_->model.KvHeads()};
  remedy::PlanClip(shape, order.entries, ledger_, &plan_);
  if (plan_.charged.size() > 0) return true;
  Answer(at, order.id, model::AckOutcome::kVoid, "every head already stands at or beyond its target");
  return false;
}

bool Actuator::ConsiderSets(const BoundaryView& at, const model::Order& order) {
  const SetsVerdict verdict = registers_.Judge(order.kind, order.sets, order.ramp, at.boundary);
  if (verdict.what == SetsVerdict::Do::kApply) return true;
  const bool left = verdict.what == SetsVerdict::Do::kRefuse;
  Answer(at, order.id, left ? model::AckOutcome::kRefused : model::AckOutcome::kVoid, verdict.reason);
  return false;
}

void Actuator::Present(const BoundaryView& at, const model::Order& order, bool local, gyro_order* out) {
  open_id_ = order.id;
  if (order.kind == model::InterventionKind::kQkClip)
    page_.Show(order, local, plan_, out);
  else
    page_.Show(order, registers_.file(), at.boundary, out);
}

void Actuator::Hold(const char* reason) {
  const std::string_view why = reason == nullptr ? std::string_view() : std::string_view(reason, strnlen(reason, 200));
  CopyReason(why.empty() && reason != nullptr ? "the trainer holds all orders" : why, &hold_);
  if (reason != nullptr) counters_->training.error.Set(hold_);
}

gyro_status Actuator::Ack(const BoundaryView& at, const uint8_t* id, int outcome, const char* reason) {
  if (open_ == Open::kNone || std::memcmp(id, open_id_.bytes.data(), open_id_.bytes.size()) != 0) {
    counters_->training.error.Set("gyro_ack named an order that is not open");
    return GYRO_STATE;
  }
  const std::string_view why =
      reason == nullptr ? std::string_view() : std::string_view(reason, strnlen(reason, GYRO_REASON_BYTES));
  const model::OrderId answered = open_ == Open::kLocal ? local_.order_id : open_id_;
  switch (outcome) {
    case GYRO_APPLIED:
      Applied(at, why);
      break;
    case GYRO_REFUSED:
      // Asked again at every boundary the trainer would refuse again: local mode ends, and the daemon hears why.
      if (open_ == Open::kLocal) local_ = {};
      Answer(at, answered, model::AckOutcome::kRefused, why.empty() ? "the trainer refused it" : why);
      break;
    case GYRO_FAILED:
      failed_ = true;
      local_ = {};
      counters_->training.error.Set(
          "an order failed while it was applied: no more orders are taken before weights and state are restored");
      Answer(at, answered, model::AckOutcome::kFailed, why.empty() ? "the trainer failed to apply it" : why);
      break;
    default:
      return GYRO_INVALID;
  }
  CloseOpen();
  return GYRO_OK;
}

void Actuator::Applied(const BoundaryView& at, std::string_view word) {
  const uint64_t before = ledger_.version();
  const model::Order* order = open_ == Open::kRemote ? orders_->Front() : nullptr;
  if (order != nullptr && order->kind != model::InterventionKind::kQkClip) {
    registers_.Apply(order->kind, order->sets, order->ramp, at.boundary);
    if (word.empty()) word = AppliedWord(order->kind);
  } else {
    ledger_.Apply(plan_.charged);
  }
  counters_->training.ledger_version.Set(ledger_.version());
  counters_->training.orders_applied.Add();
  if (open_ == Open::kLocal) {
    Push(at, RecordKind::kLocalClip, local_.order_id, model::AckOutcome::kApplied, before, {});
    records_->Commit();
    return;
  }
  Push(at, RecordKind::kOutcome, open_id_, model::AckOutcome::kApplied, before, word);
  records_->Commit();
  Remember(open_id_, model::AckOutcome::kApplied);
}

void Actuator::BeginStep(const BoundaryView& at) {
  if (open_ == Open::kNone) return;
  Ack(at, open_id_.bytes.data(), GYRO_FAILED,
      "the next step began without an ack: what became of the weights is not known");
}

gyro_status Actuator::NewEpoch(const BoundaryView& at, std::unique_ptr<RestoredState> restored) {
  if (records_->Room() < 2) {
    counters_->training.error.Set("a new epoch cannot be told: too many records wait for the sender");
    return GYRO_DROPPED;
  }
  if (restored == nullptr) {
    ledger_.Reset();
    registers_.Reset();
  } else {
    JobRegisters registers = registers_;
    std::string why;
    if (!registers.Restore(restored->registers, restored->envelope, restored->boundary, at.boundary, &why))
      return counters_->training.error.Set(why), GYRO_INVALID;
    if (!ledger_.Restore(restored->ledger_version, restored->ledger)) {
      counters_->training.error.Set("the state names heads that the model does not have");
      return GYRO_INVALID;
    }
    registers_ = std::move(registers);
    outcomes_count_ = 0;
    for (const auto& [id, outcome] : restored->outcomes) Remember(id, outcome);
  }
  if (open_ == Open::kRemote)
    Answer(at, open_id_, model::AckOutcome::kVoid, "the weights got another history before it was applied");
  CloseOpen();
  local_ = {};
  failed_ = false;
  ++epoch_;
  counters_->training.epoch.Set(epoch_);
  counters_->training.ledger_version.Set(ledger_.version());
  Record* record = Push(at, RecordKind::kEpoch, {}, model::AckOutcome::kVoid, ledger_.version(), {});
  record->restored = std::move(restored);
  records_->Commit();
  return GYRO_OK;
}

std::vector<std::pair<model::OrderId, model::AckOutcome>> Actuator::Outcomes() const {
  std::vector<std::pair<model::OrderId, model::AckOutcome>> list;
  const uint64_t first = outcomes_count_ > kOutcomesKept ? outcomes_count_ - kOutcomesKept : 0;
  for (uint64_t i = first; i < outcomes_count_; ++i)
    list.emplace_back(outcomes_[i % kOutcomesKept].id, outcomes_[i % kOutcomesKept].outcome);
  return list;
}

void Actuator::Answer(const BoundaryView& at, const model::OrderId& id, model::AckOutcome outcome,
                      std::string_view reason) {
  if (outcome != model::AckOutcome::kApplied) counters_->training.orders_refused.Add();
  Push(at, RecordKind::kOutcome, id, outcome, ledger_.version(), reason);
  records_->Commit();
  Remember(id, outcome);
}

Record* Actuator::Push(const BoundaryView& at, RecordKind kind, const model::OrderId& id, model::AckOutcome outcome,
                       uint64_t version_before, std::string_view reason) {
  Record* record = records_->Reserve();  // Never null: Poll leaves kRecordsSpare slots, NewEpoch looks first.
  record->kind = kind;
  record->frames_before = at.frames_committed;
  record->order_id = id;
  record->outcome = outcome;
  record->epoch = epoch_;
  record->boundary = at.boundary;
  record->step = at.step;
  record->world_size = 0;
  record->version_before = version_before;
  record->version_after = ledger_.version();
  record->digest =
      outcome == model::AckOutcome::kApplied
          ? StateDigest(*settings_, attempt_, epoch_, ledger_, registers_.file(), local_)
          : 0;
  record->SetReason(reason);
  return record;
}

void Actuator::Remember(const model::OrderId& id, model::AckOutcome outcome) {
  outcomes_[outcomes_count_++ % kOutcomesKept] = {id, outcome};
}

void Actuator::CloseOpen() {
  if (open_ == Open::kRemote) orders_->Release();
  open_ = Open::kNone;
}

}  // namespace gyrostat::client
