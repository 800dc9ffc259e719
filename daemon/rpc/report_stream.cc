#include "rpc/report_stream.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "rpc/convert.h"
#include "rpc/grpc_status.h"
#include "rpc/render.h"

namespace gyrostat::rpc {

ReportStream::ReportStream(const ReportStreamOptions& options, grpc::CallbackServerContext* context,
                           engine::Engine* engine, StreamTable* streams, const base::Clock* clock)
    : options_(options), context_(context), engine_(engine), streams_(streams), clock_(clock) {}

void ReportStream::Begin() {
  const bool room = streams_->Open(shared_from_this(), options_.streams_max);
  if (!room) streams_->probe().streams_refused_total.Add();
  streams_->probe().streams_total.Add();
  base::MutexLock lock(mutex_);
  self_ = shared_from_this();
  if (!room) {
    EndNowLocked(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                              "all of " + std::to_string(options_.streams_max) + " report streams are taken, or the "
                              "daemon is stopping; dial again later"));
    return;
  }
  SetTimerLocked(options_.hello_deadline, &ReportStream::OnHelloDeadline);
  input_ = Input::kReading;
  StartRead(&request_);
}

void ReportStream::OnHelloDeadline() {
  base::MutexLock lock(mutex_);
  if (phase_ != Phase::kHello || input_ != Input::kReading || end_) return;
  streams_->probe().streams_refused_total.Add();
  EndNowLocked(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                            "no hello within " + std::to_string(options_.hello_deadline.count()) + " ms"));
}

// Reading.

void ReportStream::OnReadDone(bool ok) {
  {
    base::MutexLock lock(mutex_);
    input_ = Input::kIdle;
    if (!ok && !end_)
      EndSoonLocked(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                 "the client's side ended without a bye, or sent what cannot be parsed"));
    if (!ok || end_) {  // While draining nothing more is taken: unacknowledged, it is sent again on the next stream.
      WriteLocked();
      return;
    }
    input_ = Input::kHandling;
  }
  streams_->probe().messages_received_total.Add();
  streams_->probe().bytes_received_total.Add(request_.ByteSizeLong());
  Handle();
}

void ReportStream::Handle() {
  Phase phase;
  {
    base::MutexLock lock(mutex_);
    phase = phase_;
  }
  const bool hello = request_.message_case() == v1::ClientMessage::kHello;
  if (hello != (phase == Phase::kHello)) {
    RefuseStream(absl::FailedPreconditionError(hello ? "a second hello on one stream, wanted reports, acks or a bye"
                                                     : "the first message is no hello"));
    return;
  }
  switch (request_.message_case()) {
    case v1::ClientMessage::kHello: return HandleHello();
    case v1::ClientMessage::kReport: return HandleReport();
    case v1::ClientMessage::kAck: return HandleAck();
    case v1::ClientMessage::kBye: return HandleBye();
    case v1::ClientMessage::MESSAGE_NOT_SET: return DoneHandling();  // A newer client's message.
  }
}

void ReportStream::HandleHello() {
  model::Hello hello;
  if (const absl::Status status = FromWire(request_.hello(), &hello); !status.ok()) return RefuseStream(status);
  run_ = hello.run;
  attempt_ = hello.attempt;
  spec_ = hello.model;
  {
    base::MutexLock lock(mutex_);
    timer_.reset();
    phase_ = Phase::kWelcoming;
  }
  base::LogDebug("stream opened", {{"run", run_}, {"attempt", attempt_.ToHex()}, {"peer", context_->peer()},
                                   {"client", hello.client_version}});
  if (const auto replaced = streams_->Bind(shared_from_this(), run_, attempt_)) {
    streams_->probe().streams_replaced_total.Add();
    replaced->Cut(absl::AbortedError("attempt " + attempt_.ToHex() + " of run " + run_ + " opened a newer stream"));
  }
  engine_->Post(run_, engine::HelloEvent{std::move(hello)},
                [self = shared_from_this()](const absl::Status& status) { self->OnHelloDone(status); });
  base::MutexLock lock(mutex_);
  input_ = phase_ == Phase::kWelcoming ? Input::kWaiting : Input::kIdle;
  ReadLocked();
  WriteLocked();
}

void ReportStream::OnHelloDone(const absl::Status& status) {
  v1::Mode mode = v1::MODE_UNSPECIFIED;
  if (!status.ok()) {
    streams_->probe().streams_refused_total.Add();
    // The client dials again and again; the log says it once.
    if (streams_->IsFirstRefusal(run_))
      base::LogWarn("hello refused; more of this run are only counted",
                    {{"run", run_}, {"peer", context_->peer()}, {"reason", std::string(status.message())}});
  } else if (const auto run = engine_->FindRun(run_); run.ok())
    mode = ToWire((*run)->mode);
  base::MutexLock lock(mutex_);
  if (status.ok()) {
    v1::DaemonMessage message;
    message.mutable_welcome()->set_daemon_version(options_.version);
    message.mutable_welcome()->set_mode(mode);
    acknowledged_ = AcknowledgeableLocked();
    message.mutable_welcome()->set_acknowledged_sequence(acknowledged_);
    outgoing_bytes_ += message.ByteSizeLong();
    outgoing_.push_front(std::move(message));  // Before the orders that the hello may have caused.
    phase_ = Phase::kOpen;
  } else {
    EndNowLocked(ToGrpc(status));
  }
  if (input_ == Input::kWaiting) input_ = Input::kIdle;
  ReadLocked();
  WriteLocked();
}

void ReportStream::HandleReport() {
  engine::ReportEvent event{attempt_, {}};
  uint64_t unknown = 0;
  const absl::Status status = FromWire(request_.report(), spec_, &event.report, &unknown);
  if (unknown > 0) streams_->probe().unknown_signals_total.Add(unknown);
  if (!status.ok()) {
    streams_->probe().reports_refused_total.Add();
    return Refuse(status, request_.report().sequence());
  }
  if (Post(std::move(event), request_.report().sequence())) DoneHandling();
}

void ReportStream::HandleAck() {
  engine::AckEvent event{attempt_, {}};
  if (const absl::Status status = FromWire(request_.ack(), spec_, &event.ack); !status.ok()) {
    streams_->probe().acks_refused_total.Add();
    return Refuse(status, 0);
  }
  if (Post(std::move(event), 0)) DoneHandling();
}

void ReportStream::HandleBye() {
  constexpr size_t kReasonBytesMax = 256;
  if (!Post(engine::ByeEvent{attempt_, base::CleanText(request_.bye().reason(), kReasonBytesMax)}, 0)) return;
  {
    base::MutexLock lock(mutex_);
    EndSoonLocked(grpc::Status::OK);
  }
  DoneHandling();
}

void ReportStream::DoneHandling() {
  base::MutexLock lock(mutex_);
  input_ = Input::kIdle;
  ReadLocked();
  WriteLocked();
}

bool ReportStream::Post(engine::EventBody body, uint64_t sequence) {
  uint64_t ticket = 0;
  const size_t bytes = request_.ByteSizeLong();
  {
    base::MutexLock lock(mutex_);
    ticket = first_ticket_ + in_flight_.size();
    in_flight_.push_back({.sequence = sequence, .bytes = bytes});
    in_flight_bytes_ += bytes;
    posting_ = ticket;
  }
  engine_->Post(run_, std::move(body), [self = shared_from_this(), ticket](const absl::Status& status) {
    self->OnSettled(ticket, status);
  });
  base::MutexLock lock(mutex_);
  posting_.reset();
  // Only this thread appends, so ours is the last unless it has settled and gone.
  const bool last = !in_flight_.empty() && first_ticket_ + in_flight_.size() - 1 == ticket;
  const bool bounced = last && in_flight_.back().bounced;
  if (!bounced) {
    retry_delay_ = options_.retry_first;
    return true;
  }
  in_flight_.pop_back();
  in_flight_bytes_ -= bytes;
  streams_->probe().reads_paused_total.Add();
  retry_delay_ = std::clamp(2 * retry_delay_, options_.retry_first, options_.retry_longest);
  input_ = Input::kWaiting;
  SetTimerLocked(retry_delay_, &ReportStream::Retry);
  WriteLocked();  // It may have been told to end meanwhile.
  return false;
}

void ReportStream::Retry() {
  {
    base::MutexLock lock(mutex_);
    if (end_ || input_ != Input::kWaiting) return;
    input_ = Input::kHandling;
  }
  Handle();
}

void ReportStream::OnSettled(uint64_t ticket, const absl::Status& status) {
  // UNAVAILABLE: the journal failed. The report was judged but is not safe: the client keeps it.
  const bool lost = absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
  const bool refused = !status.ok() && !lost;
  {
    base::MutexLock lock(mutex_);
    if (finished_) return;
    InFlight& entry = in_flight_[ticket - first_ticket_];
    if (refused) CountRefused(entry.sequence);
    if (absl::IsResourceExhausted(status) && posting_ == ticket) {
      entry.bounced = true;
      return;
    }
    entry.settled = true;
    entry.refused = refused;
    entry.lost = lost;
    AdvanceLocked();
    ReadLocked();
    WriteLocked();
  }
  if (refused) LogRefusalOnce(status);
}

void ReportStream::CountRefused(uint64_t sequence) {
  (sequence > 0 ? streams_->probe().reports_refused_total : streams_->probe().acks_refused_total).Add();
}

void ReportStream::Refuse(const absl::Status& status, uint64_t sequence) {
  {
    base::MutexLock lock(mutex_);
    // A number that is itself impossible is not acknowledged: it would cover reports to come.
    in_flight_.push_back({.sequence = sequence <= kCountMax ? sequence : 0, .settled = true, .refused = true});
    AdvanceLocked();
  }
  LogRefusalOnce(status);
  DoneHandling();
}

void ReportStream::RefuseStream(const absl::Status& status) {
  streams_->probe().streams_refused_total.Add();
  base::LogWarn("stream refused", {{"peer", context_->peer()}, {"reason", std::string(status.message())}});
  base::MutexLock lock(mutex_);
  EndNowLocked(ToGrpc(status));
  input_ = Input::kIdle;
  WriteLocked();
}

void ReportStream::LogRefusalOnce(const absl::Status& status) {
  {
    base::MutexLock lock(mutex_);
    if (std::exchange(refusal_logged_, true)) return;
  }
  base::LogWarn("message refused; more on this stream are only counted",
                {{"run", run_}, {"attempt", attempt_.ToHex()}, {"reason", std::string(status.message())}});
}

void ReportStream::AdvanceLocked() {
  while (!in_flight_.empty() && in_flight_.front().settled) {
    const InFlight& entry = in_flight_.front();
    if (entry.refused) refused_ = std::max(refused_, entry.sequence);
    if (entry.lost) lost_ = std::max(lost_, entry.sequence);
    in_flight_bytes_ -= entry.bytes;
    in_flight_.pop_front();
    ++first_ticket_;
  }
}

uint64_t ReportStream::AcknowledgeableLocked() const { return safe_ < lost_ ? safe_ : std::max(safe_, refused_); }

void ReportStream::ReadLocked() {
  if (finished_ || end_ || phase_ != Phase::kOpen || input_ != Input::kIdle) return;
  if (in_flight_.size() >= options_.in_flight_max || in_flight_bytes_ >= options_.in_flight_bytes_max) return;
  input_ = Input::kReading;
  StartRead(&request_);
}

// Writing and ending.

void ReportStream::WriteLocked() {
  if (finished_ || writing_) return;
  const bool open = phase_ == Phase::kOpen && !end_now_;
  if (open && !outgoing_.empty()) {
    response_ = std::move(outgoing_.front());
    outgoing_.pop_front();
    outgoing_bytes_ -= response_.ByteSizeLong();
  } else if (open && AcknowledgeableLocked() > acknowledged_) {
    acknowledged_ = AcknowledgeableLocked();
    response_.mutable_acknowledged()->set_sequence(acknowledged_);
  } else {
    // A thread that handles a message may still use what belongs to the call.
    if (end_ && (end_now_ || in_flight_.empty()) && input_ != Input::kHandling) {
      finished_ = true;
      timer_.reset();
      Finish(*end_);
    }
    return;
  }
  writing_ = true;
  write_began_ = clock_->Now();
  StartWrite(&response_);
}

void ReportStream::OnWriteDone(bool ok) {
  base::MutexLock lock(mutex_);
  writing_ = false;
  if (!ok) EndNowLocked(grpc::Status(grpc::StatusCode::CANCELLED, "the stream broke"));
  WriteLocked();
}

void ReportStream::OnCancel() {
  base::MutexLock lock(mutex_);
  EndNowLocked(grpc::Status(grpc::StatusCode::CANCELLED, "the stream broke"));
}

void ReportStream::OnDone() {
  streams_->Close(this);
  std::shared_ptr<ReportStream> self;  // Let go after the lock.
  base::MutexLock lock(mutex_);
  self = std::move(self_);
}

void ReportStream::Deliver(const model::Order& order) {
  v1::DaemonMessage message;
  ToWire(order, &message);
  const size_t bytes = message.ByteSizeLong();
  base::MutexLock lock(mutex_);
  if (finished_ || end_now_ || CutIfStuckLocked()) return;
  if (!outgoing_.empty() && outgoing_bytes_ + bytes > options_.outgoing_bytes_max) {
    streams_->probe().readers_cut_total.Add();
    EndNowLocked(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                              std::to_string(outgoing_bytes_ + bytes) + " bytes wait to be read, at most " +
                                  std::to_string(options_.outgoing_bytes_max) + "; the stream is cut"));
    return;
  }
  outgoing_.push_back(std::move(message));
  outgoing_bytes_ += bytes;
  WriteLocked();
}

void ReportStream::Acknowledge(uint64_t sequence) {
  base::MutexLock lock(mutex_);
  if (finished_ || end_now_ || CutIfStuckLocked()) return;
  safe_ = std::max(safe_, sequence);
  WriteLocked();
}

bool ReportStream::CutIfStuckLocked() {
  if (!writing_ || clock_->Now() - write_began_ < options_.write_deadline) return false;
  streams_->probe().readers_cut_total.Add();
  EndNowLocked(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                            "nothing was read for " + std::to_string(options_.write_deadline.count()) +
                                " ms; the stream is cut"));
  return true;
}

void ReportStream::Cut(const absl::Status& status) {
  base::MutexLock lock(mutex_);
  EndNowLocked(ToGrpc(status));
}

void ReportStream::Drain() {
  base::MutexLock lock(mutex_);
  EndSoonLocked(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the daemon is stopping; dial again"));
}

void ReportStream::EndSoonLocked(const grpc::Status& status) {
  if (end_) return;
  end_ = status;
  WriteLocked();
}

void ReportStream::EndNowLocked(const grpc::Status& status) {
  if (finished_ || end_now_) return;
  end_ = status;
  end_now_ = true;
  if (writing_) SetTimerLocked(options_.close_grace, &ReportStream::OnCloseGraceOver);
  WriteLocked();
}

void ReportStream::OnCloseGraceOver() {
  base::MutexLock lock(mutex_);
  if (!finished_) context_->TryCancel();
}

void ReportStream::SetTimerLocked(base::Milliseconds delay, void (ReportStream::*then)()) {
  timer_ = std::make_unique<grpc::Alarm>();
  timer_->Set(gpr_time_from_millis(delay.count(), GPR_TIMESPAN), [self = shared_from_this(), then](bool fired) {
    if (fired) (self.get()->*then)();
  });
}

}  // namespace gyrostat::rpc
