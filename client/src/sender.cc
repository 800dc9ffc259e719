#include "client/src/sender.h"

#include <algorithm>
#include <utility>

#include "base/archive.h"

namespace gyrostat::client {
namespace {

// A daemon that reads but says nothing for this long is no daemon (one that restores its journal may take seconds).
constexpr base::Milliseconds kWelcomeWithin{30'000};

}  // namespace

Sender::Sender(Shared* shared, const TransportApi* transport, const base::Clock* clock)
    : shared_(shared),
      counters_(&shared->counters.sender),
      api_(transport),
      clock_(clock),
      unacked_(shared->settings.unacked_reports, shared->settings.unacked_bytes),
      mirror_(&shared->settings, shared->attempt) {}

void Sender::Open() {
  char reason[GYRO_REASON_BYTES] = "";
  link_ = api_->open(shared_->settings.address.c_str(), reason, sizeof(reason));
  if (link_ == nullptr) counters_->error.Set(reason);
}

void Sender::Turn() {
  TakeFromTraining();
  FollowLink();
  ReceiveAll();
  SendAll();
}

void Sender::TakeFromTraining() {
  SpscQueue<Frame>& frames = shared_->frames.queue();
  RecordQueue& records = shared_->records;
  for (;;) {
    // The frame is looked at first: a record that happened before it is then visible too.
    const Frame* frame = frames.Front();
    Record* record = records.Front();
    if (record != nullptr && record->frames_before <= frames.Released()) {
      TakeRecord(*record);
      records.Release();
    } else if (frame != nullptr) {
      TakeFrame(*frame);
      frames.Release();
    } else {
      return;
    }
  }
}

void Sender::TakeFrame(const Frame& frame) {
  mirror_.OnFrame(frame);
  frame.CopyTo(&report_);
  report_.sequence = ++last_sequence_;
  report_.dropped_unacked = counters_->dropped_unacked.value();
  // Frames are taken once a millisecond: good enough for a step time, and the training thread need not ask for the
  // time.
  const base::MonotonicTime now = clock_->Now();
  if (last_frame_at_ && !(report_.step_time_ms > 0))
    report_.step_time_ms = std::chrono::duration<double, std::milli>(now - *last_frame_at_).count();
  last_frame_at_ = now;
  if (untold_clips_) report_.local_clips = std::move(*untold_clips_);
  writer_.Clear();
  base::SaveTo(&writer_, report_);
  Push({WireKind::kReport, last_sequence_, untold_clips_.has_value(), writer_.bytes()});
  untold_clips_.reset();
}

void Sender::TakeRecord(Record& record) {
  switch (record.kind) {
    case RecordKind::kOutcome:
      PushAck(mirror_.OnOutcome(record));
      break;
    case RecordKind::kLocalClip:
      untold_clips_ = mirror_.OnLocalClip(record);
      break;
    case RecordKind::kAgreed:
      if (record.agreed != nullptr) {
        mirror_.OnAgreed(*record.agreed);
        PushAck(*record.agreed);
      } else {
        mirror_.OnAgreedLocal(*record.agreed_clips);
        untold_clips_ = std::move(*record.agreed_clips);
      }
      record.agreed.reset();
      record.agreed_clips.reset();
      break;
    case RecordKind::kEpoch:
      mirror_.OnEpoch(record);
      record.restored.reset();  // Here, not when the training thread fills the slot again.
      untold_clips_.reset();
      Relink();
      break;
  }
  if (!mirror_.trouble().empty()) counters_->error.Set(mirror_.trouble());
}

void Sender::PushAck(const model::Ack& ack) {
  writer_.Clear();
  base::SaveTo(&writer_, ack);
  Push({WireKind::kAck, last_sequence_, false, writer_.bytes()});
}

void Sender::Push(UnackedRing::Item item) {
  const UnackedRing::Dropped dropped = unacked_.Push(std::move(item));
  counters_->dropped_unacked.Add(dropped.reports);
  if (!dropped.settled_by_hello_only || !welcomed_) return;
  counters_->error.Set("the daemon is too slow: what was applied was dropped before it had it");
  Relink();
}

void Sender::Relink() {
  if (link_ == nullptr || !hello_sent_) return;  // The hello to come tells it all.
  api_->close(link_, 0);
  hello_sent_ = welcomed_ = false;
  state_ = LinkState::kDown;
  counters_->connected.Set(0);
  Open();
}

void Sender::FollowLink() {
  if (link_ == nullptr) return;
  uint64_t stream = 0;
  char detail[GYRO_REASON_BYTES] = "";
  const LinkState before = std::exchange(state_, api_->state(link_, &stream, detail, sizeof(detail)));
  if (state_ == LinkState::kDown && before != LinkState::kDown) counters_->error.Set(detail);
  if (state_ != LinkState::kUp || stream != stream_) {
    hello_sent_ = welcomed_ = false;
    counters_->connected.Set(0);
  }
  if (state_ != LinkState::kUp) return;
  stream_ = stream;
  if (!hello_sent_) return SayHello();
  if (welcomed_ || clock_->Now() - hello_at_ <= kWelcomeWithin) return;
  counters_->error.Set("the daemon answered the hello with silence");
  Relink();
}

void Sender::SayHello() {
  const Settings& settings = shared_->settings;
  model::Hello hello;
  hello.run = settings.run;
  hello.attempt = shared_->attempt;
  hello.allow = settings.allow;
  hello.tau_min = settings.tau_min;
  hello.model = settings.model;
  hello.attn_logit = settings.attn_logit;
  hello.world_size = settings.world_size;
  hello.rank = settings.rank;
  hello.agreement_lag = settings.agreement_lag;
  hello.client_version = GYRO_VERSION;
  hello.framework = settings.framework;
  hello.grad_norm_convention = settings.grad_norm_clipped ? "clipped" : "unclipped";
  hello.first_sequence = unacked_.FirstSequence(last_sequence_ + 1);
  mirror_.FillHello(&hello);
  writer_.Clear();
  base::SaveTo(&writer_, hello);
  if (!api_->send(link_, WireKind::kHello, writer_.bytes().data(), writer_.bytes().size())) return;
  hello_sent_ = true;
  hello_at_ = clock_->Now();
  unacked_.Rewind();
}

void Sender::ReceiveAll() {
  DownMessage message{};
  // Bounded: a daemon that talks without end must not keep reports from leaving.
  for (int i = 0; i < 64 && link_ != nullptr && hello_sent_ && api_->receive(link_, &message); ++i) {
    switch (message.kind) {
      case DownKind::kWelcome:
        OnWelcome(message.sequence);
        break;
      case DownKind::kAcknowledged:
        OnAcknowledged(message.sequence);
        break;
      case DownKind::kOrder:
        OnOrder({message.bytes, message.size});
        break;
    }
  }
}

void Sender::OnWelcome(uint64_t sequence) {
  if (welcomed_) return;
  welcomed_ = true;
  counters_->connected.Set(1);
  if (ever_welcomed_) counters_->reconnects.Add();
  ever_welcomed_ = true;
  OnAcknowledged(sequence);
}

void Sender::OnAcknowledged(uint64_t sequence) {
  // Never more than was given: a daemon that knows another attempt's numbers must not empty the ring.
  counters_->acked.Add(unacked_.Acknowledge(std::min(sequence, last_sequence_)));
}

void Sender::OnOrder(std::string_view bytes) {
  base::ByteReader reader(bytes);
  model::Order order;
  if (!base::LoadFrom(&reader, &order)) return counters_->error.Set("an order of the daemon cannot be read");
  counters_->orders_received.Add();
  ClipMirror::Verdict verdict = mirror_.Judge(order);
  if (verdict.what == ClipMirror::Verdict::Do::kIgnore) return;
  if (verdict.what == ClipMirror::Verdict::Do::kPass) {
    if (model::Order* slot = shared_->orders.Reserve()) {
      *slot = std::move(order);
      return shared_->orders.Commit();
    }
    verdict.answer = mirror_.NoRoom(order);
  }
  if (verdict.answer.outcome != model::AckOutcome::kApplied) counters_->orders_refused.Add();
  PushAck(verdict.answer);
}

void Sender::SendAll() {
  while (welcomed_) {
    const UnackedRing::Item* item = unacked_.NextToSend();
    if (item == nullptr || !api_->send(link_, item->kind, item->bytes.data(), item->bytes.size())) return;
    unacked_.MarkSent();
  }
}

bool Sender::Settled() {
  if (shared_->frames.queue().Front() != nullptr || shared_->records.Front() != nullptr) return false;
  return link_ == nullptr || state_ == LinkState::kDown || (welcomed_ && unacked_.idle() && api_->flushed(link_));
}

void Sender::Close(base::Milliseconds budget) {
  if (link_ == nullptr) return;
  if (welcomed_) {
    writer_.Clear();
    writer_.PutString("closed by the training job");
    api_->send(link_, WireKind::kBye, writer_.bytes().data(), writer_.bytes().size());
  }
  api_->close(link_, static_cast<uint32_t>(std::max<int64_t>(budget.count(), 0)));
  link_ = nullptr;
  counters_->connected.Set(0);
}

}  // namespace gyrostat::client
