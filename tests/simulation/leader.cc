#include "simulation/leader.h"

#include <algorithm>
#include <utility>

#include "base/archive.h"
#include "base/bytes.h"

namespace gyrostat::simulation {
namespace {

template <class T>
std::string Bytes(const T& value) {
  base::ByteWriter writer;
  base::SaveTo(&writer, value);
  return writer.Take();
}

template <class T>
T ValueOf(const std::string& bytes) {
  base::ByteReader reader(bytes);
  T value;
  base::LoadFrom(&reader, &value);
  return value;
}

}  // namespace

Leader::Leader(const Plan* plan, const client::Settings* settings, const client::Agreement* rank, Scheduler* scheduler,
               Dice* dice, Daemon* daemon, Checker* checker)
    : plan_(plan), settings_(settings), rank_(rank), scheduler_(scheduler), dice_(dice), daemon_(daemon),
      checker_(checker), desk_(std::make_unique<client::LeaderDesk>(rank)), mirror_(settings, rank->attempt()),
      unacked_(1024, 32 << 20) {}

void Leader::Report(const client::Frame& frame) {
  mirror_.OnFrame(frame);
  model::Report report;
  frame.CopyTo(&report);
  report.sequence = ++last_sequence_;
  checker_->OnReport(report);
  if (!untold_.empty()) {
    report.local_clips = std::move(untold_.front());
    untold_.pop_front();
  }
  Push(client::WireKind::kReport, last_sequence_, Bytes(report));
}

void Leader::Push(client::WireKind kind, uint64_t sequence, std::string bytes) {
  unacked_.Push({kind, sequence, false, std::move(bytes)});
  SendAll();
}

void Leader::PushAck(const model::Ack& ack) {
  checker_->OnAck(ack);
  Push(client::WireKind::kAck, last_sequence_, Bytes(ack));
}

void Leader::SendAll() {
  while (connected_) {
    const client::UnackedRing::Item* item = unacked_.NextToSend();
    if (item == nullptr) return;
    Send(item->kind, item->bytes);
    unacked_.MarkSent();
  }
}

// A stream keeps the order of what it carries, and loses what is under way when it breaks.
void Leader::Send(client::WireKind kind, const std::string& bytes) {
  up_clear_at_ = std::max(up_clear_at_, scheduler_->now() + dice_->Between(plan_->wire_min, plan_->wire_max));
  scheduler_->After(up_clear_at_ - scheduler_->now(), [this, kind, bytes, stream = stream_] {
    if (stream == stream_ && connected_ && daemon_->up()) Deliver(kind, bytes);
  });
}

void Leader::Deliver(client::WireKind kind, const std::string& bytes) {
  const model::AttemptId& attempt = rank_->attempt();
  if (kind == client::WireKind::kHello) daemon_->Take(engine::HelloEvent{ValueOf<model::Hello>(bytes)});
  if (kind == client::WireKind::kReport) daemon_->Take(engine::ReportEvent{attempt, ValueOf<model::Report>(bytes)});
  if (kind == client::WireKind::kAck) daemon_->Take(engine::AckEvent{attempt, ValueOf<model::Ack>(bytes)});
}

void Leader::SayHello() {
  model::Hello hello;
  hello.run = settings_->run;
  hello.attempt = rank_->attempt();
  hello.allow = settings_->allow;
  hello.tau_min = settings_->tau_min;
  hello.model = settings_->model;
  hello.attn_logit = settings_->attn_logit;
  hello.world_size = settings_->world_size;
  hello.agreement_lag = settings_->agreement_lag;
  hello.first_sequence = unacked_.FirstSequence(last_sequence_ + 1);
  mirror_.FillHello(&hello);
  Send(client::WireKind::kHello, Bytes(hello));
  unacked_.Rewind();
}

void Leader::Connect() {
  if (dead_ || connected_ || !daemon_->up()) return;
  connected_ = true;
  ++stream_;
  SayHello();
  SendAll();
}

void Leader::Break() {
  connected_ = false;
  ++stream_;
}

void Leader::Acknowledged(uint64_t sequence) {
  scheduler_->After(dice_->Between(plan_->wire_min, plan_->wire_max), [this, sequence, stream = stream_] {
    if (stream == stream_ && connected_) unacked_.Acknowledge(std::min(sequence, last_sequence_));
  });
}

void Leader::Receive(const model::Order& order) {
  if (dead_) return;
  const client::ClipMirror::Verdict verdict = mirror_.Judge(order);
  if (verdict.what == client::ClipMirror::Verdict::Do::kPass) {
    arrived_.push_back(order);
  } else if (verdict.what == client::ClipMirror::Verdict::Do::kAnswer) {
    // A known outcome said again is no new word: the checker has seen it.
    Push(client::WireKind::kAck, last_sequence_, Bytes(verdict.answer));
  }
}

void Leader::TakeOrders() {
  while (!arrived_.empty() && !desk_->full()) {
    desk_->Take(arrived_.front());
    arrived_.pop_front();
  }
}

void Leader::Tell() {
  for (const model::Ack& ack : desk_->acks) {
    mirror_.OnAgreed(ack);
    PushAck(ack);
  }
  desk_->acks.clear();
  for (model::LocalClips& clips : desk_->local_clips) {
    mirror_.OnAgreedLocal(clips);
    untold_.push_back(std::move(clips));
  }
  desk_->local_clips.clear();
}

void Leader::NewEpoch(uint32_t epoch, model::Boundary boundary, const client::RestoredState* restored) {
  Leave();
  BeginEpoch(epoch, 0, boundary, restored);
}

void Leader::Leave() {
  desk_->NewEpoch();
  Tell();
}

void Leader::GoOn(const client::Agreement* rank, uint32_t world_size, model::Boundary boundary,
                  const client::RestoredState* restored) {
  rank_ = rank;
  desk_ = std::make_unique<client::LeaderDesk>(rank);
  BeginEpoch(rank->epoch(), world_size, boundary, restored);
}

void Leader::BeginEpoch(uint32_t epoch, uint32_t world_size, model::Boundary boundary,
                        const client::RestoredState* restored) {
  client::Record record;
  record.kind = client::RecordKind::kEpoch;
  record.epoch = epoch;
  record.world_size = world_size;
  record.boundary = boundary;
  if (restored != nullptr) record.restored = std::make_unique<client::RestoredState>(*restored);
  mirror_.OnEpoch(record);
  untold_.clear();
  if (!connected_) return;
  Break();
  Connect();
}

}  // namespace gyrostat::simulation
