#include "rpc/watch_stream.h"

#include <utility>
#include <vector>

#include "rpc/grpc_status.h"
#include "rpc/render.h"

namespace gyrostat::rpc {

bool WatchSet::Add(const std::shared_ptr<WatchStream>& watch, size_t watchers_max) {
  base::MutexLock lock(mutex_);
  if (stopped_ || watches_.size() >= watchers_max) return false;
  watches_.emplace(watch.get(), watch);
  return true;
}

void WatchSet::Remove(const WatchStream* watch) {
  base::MutexLock lock(mutex_);
  watches_.erase(watch);
}

void WatchSet::StopAll() {
  std::vector<std::shared_ptr<WatchStream>> watches;
  {
    base::MutexLock lock(mutex_);
    stopped_ = true;
    for (const auto& [key, watch] : watches_) watches.push_back(watch);
  }
  for (const auto& watch : watches)
    watch->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the daemon is stopping; watch again"));
}

WatchStream::WatchStream(WatchOptions options, grpc::CallbackServerContext* context, engine::Engine* engine,
                         WatchSet* watches, Probe* probe, const base::Clock* clock)
    : options_(std::move(options)), context_(context), engine_(engine), watches_(watches), probe_(probe),
      clock_(clock) {}

void WatchStream::Begin() {
  const bool room = watches_->Add(shared_from_this(), options_.watchers_max);
  {
    base::MutexLock lock(mutex_);
    self_ = shared_from_this();
    counted_ = room;
    if (!room)
      EndLocked(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                             "all of " + std::to_string(options_.watchers_max) + " watches are taken, or the daemon is "
                             "stopping"));
  }
  if (!room) return;
  probe_->watchers_open.Add(1);
  Tick();
}

void WatchStream::Tick() {
  const auto run = engine_->FindRun(options_.run);
  base::MutexLock lock(mutex_);
  if (end_) return;
  if (!run.ok()) return EndLocked(ToGrpc(run.status()));
  if (!writing_) {
    view_.Clear();
    ToWire(**run, &view_);
    if (options_.heads) AddHeads(**run, &view_);
    writing_ = true;
    write_began_ = clock_->Now();
    StartWrite(&view_);
  } else if (clock_->Now() - write_began_ >= options_.write_deadline) {
    probe_->readers_cut_total.Add();
    EndLocked(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                           "nothing was read for " + std::to_string(options_.write_deadline.count()) + " ms"));
    context_->TryCancel();  // The write in progress would never end by itself.
    return;
  }
  timer_ = std::make_unique<grpc::Alarm>();
  timer_->Set(gpr_time_from_millis(options_.interval.count(), GPR_TIMESPAN),
              [self = shared_from_this()](bool fired) {
                if (fired) self->Tick();
              });
}

void WatchStream::End(const grpc::Status& status) {
  base::MutexLock lock(mutex_);
  EndLocked(status);
}

void WatchStream::EndLocked(const grpc::Status& status) {
  if (end_) return;
  end_ = status;
  timer_.reset();
  if (!writing_) FinishLocked();
}

void WatchStream::FinishLocked() {
  finished_ = true;
  Finish(*end_);
}

void WatchStream::OnWriteDone(bool ok) {
  base::MutexLock lock(mutex_);
  writing_ = false;
  if (end_)
    FinishLocked();
  else if (!ok)
    EndLocked(grpc::Status(grpc::StatusCode::CANCELLED, "the stream broke"));
}

void WatchStream::OnCancel() {
  base::MutexLock lock(mutex_);
  EndLocked(grpc::Status(grpc::StatusCode::CANCELLED, "the stream broke"));
}

void WatchStream::OnDone() {
  watches_->Remove(this);
  std::shared_ptr<WatchStream> self;  // Let go after the lock.
  base::MutexLock lock(mutex_);
  self = std::move(self_);
  if (counted_) probe_->watchers_open.Add(-1);
}

}  // namespace gyrostat::rpc
