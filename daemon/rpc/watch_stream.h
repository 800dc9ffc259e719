// Watch: one look at a run every interval, for as long as somebody reads.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "gyrostat/v1/control.grpc.pb.h"
#include "rpc/probe.h"

namespace gyrostat::rpc {

class WatchStream;

// All watches, so that they can be counted and ended. Thread-safe. Calls no watch while holding its lock.
class WatchSet {
 public:
  // False when `watchers_max` watch already, or once StopAll was called.
  bool Add(const std::shared_ptr<WatchStream>& watch, size_t watchers_max);
  void Remove(const WatchStream* watch);
  void StopAll();

 private:
  base::Mutex mutex_;
  std::map<const WatchStream*, std::shared_ptr<WatchStream>> watches_ GYROSTAT_GUARDED_BY(mutex_);
  bool stopped_ GYROSTAT_GUARDED_BY(mutex_) = false;
};

struct WatchOptions {
  std::string run;
  base::Milliseconds interval{1000};
  bool heads = false;  // With every head's maximum.
  size_t watchers_max = 64;
  base::Milliseconds write_deadline{20000};  // A reader that has not taken one view by then is cut.
};

// While one view is being written the next is not made, so a slow reader costs one view of memory and sees the newest.
class WatchStream final : public grpc::ServerWriteReactor<v1::RunView>,
                          public std::enable_shared_from_this<WatchStream> {
 public:
  // All pointers outlive the gRPC call. `context` belongs to it.
  WatchStream(WatchOptions options, grpc::CallbackServerContext* context, engine::Engine* engine, WatchSet* watches,
              Probe* probe, const base::Clock* clock);

  // Sends the first view, or ends with RESOURCE_EXHAUSTED. Keeps itself alive until OnDone.
  void Begin() GYROSTAT_EXCLUDES(mutex_);
  void End(const grpc::Status& status) GYROSTAT_EXCLUDES(mutex_);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void Tick() GYROSTAT_EXCLUDES(mutex_);
  void EndLocked(const grpc::Status& status) GYROSTAT_REQUIRES(mutex_);
  void FinishLocked() GYROSTAT_REQUIRES(mutex_);

  const WatchOptions options_;
  grpc::CallbackServerContext* const context_;
  engine::Engine* const engine_;
  WatchSet* const watches_;
  Probe* const probe_;
  const base::Clock* const clock_;
  v1::RunView view_;  // gRPC's while writing_.

  base::Mutex mutex_;
  std::shared_ptr<WatchStream> self_ GYROSTAT_GUARDED_BY(mutex_);
  bool counted_ GYROSTAT_GUARDED_BY(mutex_) = false;
  bool writing_ GYROSTAT_GUARDED_BY(mutex_) = false;
  base::MonotonicTime write_began_ GYROSTAT_GUARDED_BY(mutex_);
  std::optional<grpc::Status> end_ GYROSTAT_GUARDED_BY(mutex_);
  bool finished_ GYROSTAT_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Alarm> timer_ GYROSTAT_GUARDED_BY(mutex_);
};

}  // namespace gyrostat::rpc
