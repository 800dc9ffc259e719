#include "client/src/lockstep.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace gyrostat::client {
namespace {

// Rows of one head, as far as the job said; 1 where it did not and no shard cuts heads.
uint32_t RowsPerHead(const model::ModelSpec& model) { return std::max(model.head_dim, 1u); }

AgreementTerms TermsOf(const Settings& settings) {
  const Statistics statistics(settings.model, PlaceOf(settings, 1));
  return {.layout = {.statistics = statistics.maxima(), .more = statistics.more(), .sums = statistics.sums()},
          .lag = settings.agreement_lag};
}

RowCover CoverOf(const Settings& settings, const RowCover& whole) {
  if (settings.shards.empty()) return whole;
  RowCover cover;
  for (const gyro_shard& shard : settings.shards)
    cover.Add(shard.layer, shard.key != 0 ? RowCover::Projection::kKey : RowCover::Projection::kQuery, shard.row_begin,
              shard.row_end);
  return cover;
}

bool CanReduce(const gyro_collective& collective, std::vector<float>* lanes) {
  return collective.max_begin(collective.context, lanes->data(), lanes->size()) == 0 &&
         collective.max_wait(collective.context, lanes->data(), lanes->size()) == 0;
}

}  // namespace

JoinResult JoinRanks(const Settings& settings, const Standing& standing) {
  const Agreement blank(&settings, TermsOf(settings), {});
  const RowCover whole = RowCover::Whole(settings.model, RowsPerHead(settings.model));
  const JoinWord word{.layout = TermsOf(settings).layout,
                      .lag = settings.agreement_lag,
                      .world_size = settings.world_size,
                      .rank = settings.rank,
                      .replica = settings.collective.replica,
                      .attempt = standing.attempt,
                      .epoch = standing.epoch,
                      .boundary = standing.boundary,
                      .digest = blank.digest(),
                      .ready = standing.ready,
                      .cover = CoverOf(settings, whole)};
  std::vector<float> lanes(JoinLanes(settings.world_size));
  WriteJoin(word, lanes);
  if (CanReduce(settings.collective, &lanes)) return ReadJoin(word, whole, lanes);
  JoinResult failed;
  failed.epoch = standing.epoch;
  failed.boundary = standing.boundary;
  failed.reason = "the collective failed when the ranks joined";
  return failed;
}

Lockstep::Lockstep(const Settings* settings, const JoinResult& join, FrameRing* frames, OrderQueue* orders,
                   RecordQueue* records, Counters* counters)
    : settings_(settings),
      leader_(settings->rank == 0),
      frames_(frames),
      orders_(orders),
      records_(records),
      counters_(counters),
      agreement_(settings, TermsOf(*settings), join.attempt),
      desk_(&agreement_),
      statistics_(settings->model, PlaceOf(*settings, join.replicas)),
      lanes_(agreement_.terms().layout.size()),
      sums_(agreement_.terms().layout.sums),
      issues_round_(join.same_round),
      issues_sums_(join.same_sums && !sums_.empty()),
      asks_(leader_ && settings->collective.round_done != nullptr) {
  if (!join.may_act) agreement_.HoldForEver(join.reason);
  SayTrouble();
}

gyro_status Lockstep::StepEnded(const BoundaryView& at, Recorder* recorder) {
  frame_ = recorder->last();
  agreement_.Passed(at.boundary);
  const bool waits = agreement_.needs_round(at.boundary);
  const bool came = WaitForRound() && waits;
  moment_.boundary = at.boundary;
  const Action& action = waits && !came ? agreement_.DecideFailed(at.boundary)
                                        : agreement_.Decide(at.boundary, came ? lanes_ : std::span<const float>());
  Deliver(came, recorder);
  if (leader_ && waits && !came) desk_.Lost(agreement_.trouble(), at.boundary, at.step);
  if (leader_ && !(waits && !came)) desk_.Decided(action, at.boundary, at.step);
  to_present_.clear();
  if (!action.sets.empty()) to_present_.push_back(Part::kSets);
  if (action.plan.charged.size() > 0) to_present_.push_back(Part::kClip);
  if (action.acts() && to_present_.empty()) Done(at);  // Local mode's own register: nothing for the trainer to do.
  Tell(at);
  SayTrouble();
  return agreement_.unsure() ? GYRO_UNSURE : GYRO_OK;
}

bool Lockstep::WaitForRound() {
  const auto milliseconds = [](base::MonotonicTime from, base::MonotonicTime to) {
    return from == base::MonotonicTime{} ? 0 : std::chrono::duration<double, std::milli>(to - from).count();
  };
  const base::MonotonicTime now = base::SystemClock().Now();
  moment_.step_ms = milliseconds(entered_, now);
  moment_.own_ms = milliseconds(left_, now);
  entered_ = now;
  if (begun_ || sums_begun_) ReadRound();
  left_ = base::SystemClock().Now();
  return std::exchange(came_, false);
}

void Lockstep::ReadRound() {
  const gyro_collective& collective = settings_->collective;
  came_ = std::exchange(begun_, false) &&
          collective.max_wait(collective.context, lanes_.data(), lanes_.size()) == 0;
  // Waited for whatever became of R: what is under way owns its lanes.
  sums_came_ = std::exchange(sums_begun_, false) &&
               collective.sum_wait(collective.context, sums_.data(), sums_.size()) == 0;
}

void Lockstep::ReadEarly(const BoundaryView& at, Recorder* recorder) {
  ReadRound();
  const model::Boundary decides = at.boundary + agreement_.terms().lag;
  if (!came_ || !agreement_.needs_round(decides)) return;
  // First what is told of earlier boundaries: the report's forward may have run under a version of the ledger that only
  // its own R confirms.
  desk_.Confirmed(agreement_.ConfirmedBy(decides, lanes_));
  Tell(at);
  Complete(true, recorder->held());
  recorder->DeliverHeldEarly();
}

void Lockstep::Complete(bool came, Frame* frame) const {
  if (frame == nullptr || !leader_) return;
  if (came)
    statistics_.Read(std::span<const float>(lanes_).subspan(agreement_.terms().layout.statistics_at()),
                     sums_came_ ? sums_ : std::span<const float>(), frame);
  else
    statistics_.Alone(frame);
}

void Lockstep::Deliver(bool came, Recorder* recorder) {
  Complete(came, recorder->held());
  recorder->DeliverHeld();
  if (!has_sender_)
    while (frames_->queue().Front() != nullptr) frames_->queue().Release();
}

void Lockstep::Closing(Recorder* recorder) { Deliver(false, recorder); }

void Lockstep::Done(const BoundaryView&) {
  agreement_.Applied();
  counters_->training.ledger_version.Set(agreement_.ledger().version());
  if (leader_) desk_.Applied(agreement_.action());
}

gyro_status Lockstep::Poll(const BoundaryView& at, gyro_order* order) {
  if (open_) {
    counters_->training.error.Set("gyro_poll was called before the order it gave last was acked");
    return GYRO_STATE;
  }
  if (to_present_.empty()) {
    Finish(at);
    return GYRO_NONE;
  }
  const Part part = to_present_.back();
  to_present_.pop_back();
  const Action& action = agreement_.action();
  const bool clip = part == Part::kClip;
  const bool ordered =
      action.verdict == Verdict::kApply && clip == (action.kind == model::InterventionKind::kQkClip);
  model::Order shown;
  shown.id = open_id_ = ordered ? action.tag.AsId() : LocalClipId(at.boundary);
  shown.basis = ordered ? action.put_in : action.basis;
  shown.expires_boundary = at.boundary;
  open_ = true;
  if (clip) {
    shown.tau = action.tau;
    page_.Show(shown, !ordered, action.plan, order);
    return GYRO_OK;
  }
  shown.kind = action.kind;
  shown.sets = action.sets;
  shown.ramp = action.ramp;
  page_.Show(shown, agreement_.registers().file(), at.boundary, order);
  return GYRO_OK;
}

gyro_status Lockstep::Ack(const BoundaryView& at, const uint8_t* id, int outcome, const char* reason) {
  if (!open_ || std::memcmp(id, open_id_.bytes.data(), open_id_.bytes.size()) != 0) {
    counters_->training.error.Set("gyro_ack named an order that is not open");
    return GYRO_STATE;
  }
  open_ = false;
  if (outcome == GYRO_APPLIED) {
    counters_->training.orders_applied.Add();
    if (to_present_.empty()) Done(at);  // The action is done as a whole.
    return GYRO_OK;
  }
  // The other ranks apply it: here a refusal is a failure.
  const std::string why =
      reason == nullptr ? "the trainer did not apply it" : std::string(reason, strnlen(reason, GYRO_REASON_BYTES / 2));
  to_present_.clear();
  agreement_.Failed(why);
  if (leader_) desk_.Failed(why);
  counters_->training.orders_refused.Add();
  Tell(at);
  SayTrouble();
  return GYRO_OK;
}

void Lockstep::BeginStep(const BoundaryView& at) {
  if (at.boundary == 0) return;
  if (open_) Ack(at, open_id_.bytes.data(), GYRO_FAILED, "the next step began without an ack");
  if (!to_present_.empty()) {
    to_present_.clear();
    agreement_.Failed("the next step began without a poll");
    if (leader_) desk_.Failed("the next step began without a poll");
    Tell(at);
    SayTrouble();
  }
  Finish(at);
}

void Lockstep::Finish(const BoundaryView& at) {
  if (finished_ == at.boundary) return;
  finished_ = at.boundary;
  FillInput in{.maxima = at.maxima, .maxima_usable = at.known, .ready = hold_.empty()};
  if (!at.maxima.empty())
    in.maxima_usable = at.kind == model::LogitKind::kExact || at.kind == model::LogitKind::kLseUpper;
  if (leader_) {
    for (const model::Order* order = orders_->Front(); order != nullptr && !desk_.full(); order = orders_->Front()) {
      desk_.Take(*order);
      orders_->Release();
    }
    if (!hold_.empty()) desk_.RefuseAll(hold_);
    in.proposal = desk_.Propose(at.boundary, at.step);
  }
  if (!issues_round_) desk_.NotIn("the ranks do not share one layout of R");
  else if (!agreement_.Fill(at.boundary, in, lanes_)) desk_.NotIn();
  Tell(at);
  if (issues_round_) BeginRound();
}

void Lockstep::BeginRound() {
  const gyro_collective& collective = settings_->collective;
  statistics_.Write(frame_, moment_, std::span(lanes_).subspan(agreement_.terms().layout.statistics_at()), sums_);
  frame_ = nullptr;
  came_ = sums_came_ = false;
  begun_ = collective.max_begin(collective.context, lanes_.data(), lanes_.size()) == 0;
  if (issues_sums_) sums_begun_ = collective.sum_begin(collective.context, sums_.data(), sums_.size()) == 0;
}

Record* Lockstep::NextRecord(const BoundaryView& at, RecordKind kind) {
  Record* record = records_->Reserve();
  if (record == nullptr) return nullptr;
  record->kind = kind;
  record->frames_before = at.frames_committed;
  record->epoch = agreement_.epoch();
  record->boundary = at.boundary;
  record->step = at.step;
  return record;
}

// What finds no room in the queue waits for the next boundary.
void Lockstep::Tell(const BoundaryView& at) {
  if (!has_sender_) desk_.acks.clear(), desk_.local_clips.clear();
  size_t told = 0;
  for (; told < desk_.acks.size() && records_->Room() > 1; ++told) {
    Record* record = NextRecord(at, RecordKind::kAgreed);
    record->agreed = std::make_unique<model::Ack>(std::move(desk_.acks[told]));
    records_->Commit();
  }
  desk_.acks.erase(desk_.acks.begin(), desk_.acks.begin() + static_cast<std::ptrdiff_t>(told));
  for (told = 0; told < desk_.local_clips.size() && records_->Room() > 1; ++told) {
    Record* record = NextRecord(at, RecordKind::kAgreed);
    record->agreed_clips = std::make_unique<model::LocalClips>(std::move(desk_.local_clips[told]));
    records_->Commit();
  }
  desk_.local_clips.erase(desk_.local_clips.begin(), desk_.local_clips.begin() + static_cast<std::ptrdiff_t>(told));
}

gyro_status Lockstep::NewEpoch(const BoundaryView& at, std::unique_ptr<RestoredState> restored) {
  if (at.boundary != 0) BeginStep(at);
  if (has_sender_ && records_->Room() < 2) {
    counters_->training.error.Set("a new epoch cannot be told: too many records wait for the sender");
    return GYRO_DROPPED;
  }
  std::string why;
  if (!agreement_.NewEpoch(restored.get(), &why)) return counters_->training.error.Set(why), GYRO_INVALID;
  if (leader_) desk_.NewEpoch();
  return TellEpoch(at, std::move(restored));
}

void Lockstep::HasSender(const BoundaryView& at) {
  has_sender_ = true;
  if (agreement_.epoch() > 0) TellEpoch(at, nullptr);  // Joined ranks that were there before.
}

gyro_status Lockstep::TellEpoch(const BoundaryView& at, std::unique_ptr<RestoredState> restored) {
  counters_->training.epoch.Set(agreement_.epoch());
  counters_->training.ledger_version.Set(agreement_.ledger().version());
  if (!has_sender_) return GYRO_OK;
  Tell(at);
  Record* record = NextRecord(at, RecordKind::kEpoch);
  if (record == nullptr) return GYRO_DROPPED;
  record->restored = std::move(restored);
  record->world_size = settings_->world_size;
  records_->Commit();
  return GYRO_OK;
}

void Lockstep::Leave(const BoundaryView& at) {
  if (open_ || !to_present_.empty()) agreement_.Failed("the ranks joined again before it was applied");
  if (leader_) desk_.NewEpoch();
  Tell(at);
}

gyro_status Lockstep::GoOn(const BoundaryView& at, const JoinResult& join, Passage brought) {
  std::string why;
  if (!agreement_.GoOn(&brought, join.epoch, join.boundary, &why))
    return counters_->training.error.Set(why), GYRO_INVALID;
  finished_ = join.boundary;
  SayTrouble();
  return TellEpoch(at, std::move(brought.state));
}

void Lockstep::Hold(const char* reason) {
  hold_ = reason == nullptr ? std::string() : std::string(reason, strnlen(reason, GYRO_REASON_BYTES - 1));
  if (reason == nullptr) return;
  if (hold_.empty()) hold_ = "the trainer holds all orders";
  counters_->training.error.Set("nothing is applied: " + hold_);
}

void Lockstep::SayTrouble() {
  if (said_ == agreement_.trouble()) return;
  said_ = agreement_.trouble();
  if (!said_.empty()) counters_->training.error.Set("nothing is applied: " + said_);
}

}  // namespace gyrostat::client
