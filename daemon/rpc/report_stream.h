// One training job's stream, from hello to bye.
//
// Reading and writing are two small machines under one lock. Reading: one message at a time, judged, posted to the
// engine; the next is read only while little is in flight, so a flood waits in the client's own ring, and while the
// engine's queue is full the message in hand is tried again later. Writing: one StartWrite at a time (gRPC aborts the
// process on a second), orders first, of acknowledgements only the newest; a peer that does not read is cut.
//
// Acknowledging. Good reports: by the engine, through the table, once they are durable. Refused ones (malformed, or the
// engine says no) would otherwise be sent again for ever, so they are counted, logged once and acknowledged as well;
// but an acknowledgement covers everything up to its number, so only once all before them are safe.
//
// gRPC runs reactions on its own threads, never inside Start… or Finish, so those are called under the lock.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "gyrostat/v1/report.grpc.pb.h"
#include "model/intervention.h"
#include "rpc/stream_table.h"

namespace gyrostat::rpc {

struct ReportStreamOptions {
  std::string version;
  size_t streams_max = 4096;
  base::Milliseconds hello_deadline{10000};
  // What one stream may have in the engine's hands: 64 hides a journal commit, 8 MiB is twice the largest message.
  size_t in_flight_max = 64;
  size_t in_flight_bytes_max = size_t{8} << 20;
  // What may wait for a reader before it is cut (one order alone may be larger), and how long one write may take.
  size_t outgoing_bytes_max = size_t{1} << 20;
  base::Milliseconds write_deadline{20000};
  base::Milliseconds retry_first{10}, retry_longest{500};  // While the engine's queue is full, doubling.
  base::Milliseconds close_grace{2000};  // For the write in progress before a stream that ends is torn down.
};

class ReportStream final : public grpc::ServerBidiReactor<v1::ClientMessage, v1::DaemonMessage>,
                           public Stream,
                           public std::enable_shared_from_this<ReportStream> {
 public:
  // All pointers outlive the stream's gRPC call. `context` belongs to it.
  ReportStream(const ReportStreamOptions& options, grpc::CallbackServerContext* context, engine::Engine* engine,
               StreamTable* streams, const base::Clock* clock);

  // Counts itself in and starts reading, or ends at once with RESOURCE_EXHAUSTED. Keeps itself alive until OnDone.
  void Begin() GYROSTAT_EXCLUDES(mutex_);

  // Stream.
  void Deliver(const model::Order& order) override;
  void Acknowledge(uint64_t sequence) override;
  void Cut(const absl::Status& status) override;
  void Drain() override;

  // grpc::ServerBidiReactor.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  enum class Phase { kHello, kWelcoming, kOpen };  // Nothing said; hello posted; welcomed.
  // Who holds `request_`: nobody, gRPC, a thread of ours, or nobody but it is still needed (hello's answer, a retry).
  enum class Input { kIdle, kReading, kHandling, kWaiting };
  struct InFlight {
    uint64_t sequence = 0;  // 0: not a report.
    size_t bytes = 0;
    bool settled = false, refused = false, lost = false, bounced = false;
  };

  // Judges and posts `request_`; input_ is kHandling, so the call cannot end meanwhile.
  void Handle() GYROSTAT_EXCLUDES(mutex_);
  void HandleHello() GYROSTAT_EXCLUDES(mutex_);
  void HandleReport() GYROSTAT_EXCLUDES(mutex_);
  void HandleAck() GYROSTAT_EXCLUDES(mutex_);
  void HandleBye() GYROSTAT_EXCLUDES(mutex_);
  // Posts an event made of `request_`. False: the engine's queue is full and the retry is armed.
  bool Post(engine::EventBody body, uint64_t sequence) GYROSTAT_EXCLUDES(mutex_);
  void Retry() GYROSTAT_EXCLUDES(mutex_);
  void OnSettled(uint64_t ticket, const absl::Status& status) GYROSTAT_EXCLUDES(mutex_);
  void OnHelloDone(const absl::Status& status) GYROSTAT_EXCLUDES(mutex_);
  // Takes a malformed message off the input: acknowledged in its turn where it is a report.
  void Refuse(const absl::Status& status, uint64_t sequence) GYROSTAT_EXCLUDES(mutex_);
  void RefuseStream(const absl::Status& status) GYROSTAT_EXCLUDES(mutex_);
  void DoneHandling() GYROSTAT_EXCLUDES(mutex_);
  void CountRefused(uint64_t sequence);
  // Once a stream, so that a broken client cannot fill the log.
  void LogRefusalOnce(const absl::Status& status) GYROSTAT_EXCLUDES(mutex_);

  void AdvanceLocked() GYROSTAT_REQUIRES(mutex_);
  uint64_t AcknowledgeableLocked() const GYROSTAT_REQUIRES(mutex_);
  // Reads, writes or finishes, whichever is due. Every change of state ends in one of these two.
  void ReadLocked() GYROSTAT_REQUIRES(mutex_);
  void WriteLocked() GYROSTAT_REQUIRES(mutex_);
  // True, and the stream ends, when the peer has not taken a write for too long.
  bool CutIfStuckLocked() GYROSTAT_REQUIRES(mutex_);
  // Ends with `status` once everything in flight has settled and everything owed was written.
  void EndSoonLocked(const grpc::Status& status) GYROSTAT_REQUIRES(mutex_);
  // Ends with `status`; only the write in progress is waited for, and not for long.
  void EndNowLocked(const grpc::Status& status) GYROSTAT_REQUIRES(mutex_);
  // Replaces the timer. `then` must check that it is still wanted: it may have begun before it was replaced.
  void SetTimerLocked(base::Milliseconds delay, void (ReportStream::*then)()) GYROSTAT_REQUIRES(mutex_);
  void OnHelloDeadline() GYROSTAT_EXCLUDES(mutex_);
  void OnCloseGraceOver() GYROSTAT_EXCLUDES(mutex_);

  // Constant after construction.
  const ReportStreamOptions options_;
  grpc::CallbackServerContext* const context_;
  engine::Engine* const engine_;
  StreamTable* const streams_;
  const base::Clock* const clock_;

  // Owned by whoever input_ says.
  v1::ClientMessage request_;
  // gRPC's while writing_.
  v1::DaemonMessage response_;

  // Written by the hello before any other message is read, constant after.
  std::string run_;
  model::AttemptId attempt_;
  model::ModelSpec spec_;

  mutable base::Mutex mutex_;
  std::shared_ptr<ReportStream> self_ GYROSTAT_GUARDED_BY(mutex_);
  Phase phase_ GYROSTAT_GUARDED_BY(mutex_) = Phase::kHello;
  Input input_ GYROSTAT_GUARDED_BY(mutex_) = Input::kIdle;
  std::deque<InFlight> in_flight_ GYROSTAT_GUARDED_BY(mutex_);
  uint64_t first_ticket_ GYROSTAT_GUARDED_BY(mutex_) = 0;  // Of in_flight_.front().
  size_t in_flight_bytes_ GYROSTAT_GUARDED_BY(mutex_) = 0;
  base::Milliseconds retry_delay_ GYROSTAT_GUARDED_BY(mutex_){0};
  std::deque<v1::DaemonMessage> outgoing_ GYROSTAT_GUARDED_BY(mutex_);
  size_t outgoing_bytes_ GYROSTAT_GUARDED_BY(mutex_) = 0;
  uint64_t safe_ GYROSTAT_GUARDED_BY(mutex_) = 0;          // The engine's word.
  uint64_t refused_ GYROSTAT_GUARDED_BY(mutex_) = 0;       // The newest that was refused, and all before it settled.
  uint64_t lost_ GYROSTAT_GUARDED_BY(mutex_) = 0;          // The newest that the journal could not keep.
  uint64_t acknowledged_ GYROSTAT_GUARDED_BY(mutex_) = 0;  // The client was told.
  std::optional<uint64_t> posting_ GYROSTAT_GUARDED_BY(mutex_);  // The ticket a thread is just handing to the engine.
  bool writing_ GYROSTAT_GUARDED_BY(mutex_) = false;
  base::MonotonicTime write_began_ GYROSTAT_GUARDED_BY(mutex_);
  bool refusal_logged_ GYROSTAT_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> end_ GYROSTAT_GUARDED_BY(mutex_);  // How it will end.
  bool end_now_ GYROSTAT_GUARDED_BY(mutex_) = false;
  bool finished_ GYROSTAT_GUARDED_BY(mutex_) = false;            // Finish was called; nothing may be started.
  std::unique_ptr<grpc::Alarm> timer_ GYROSTAT_GUARDED_BY(mutex_);
};

}  // namespace gyrostat::rpc
