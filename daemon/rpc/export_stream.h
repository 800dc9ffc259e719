// Export: a run's reports as they were acknowledged, page by page from the disk.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "base/mutex.h"
#include "engine/ports.h"
#include "gyrostat/v1/control.grpc.pb.h"
#include "rpc/disk_pool.h"
#include "rpc/probe.h"

namespace gyrostat::rpc {

struct ExportOptions {
  engine::ReportQuery query;
  std::set<std::string> signals;  // Of signals and user scalars; empty: all.
  std::chrono::milliseconds write_deadline{600'000};  // A reader that has not taken one message by then is cut.
};

// One page is in memory, and the next is read when all of it has been taken, so a slow reader costs one page and no
// read transaction; other reads of the disk have their turn between two pages. Keeps itself alive from Begin to OnDone.
class ExportStream final : public grpc::ServerWriteReactor<v1::ExportChunk>,
                           public std::enable_shared_from_this<ExportStream> {
 public:
  static constexpr size_t kChunkBytes = size_t{256} << 10;  // Of a message with more than one report in it.

  // All pointers outlive the gRPC call. `context` belongs to it. `open` counts the streams that there are.
  ExportStream(ExportOptions options, grpc::CallbackServerContext* context, engine::History* history, DiskPool* disk,
               Probe* probe, std::atomic<uint32_t>* open);
  ~ExportStream() override { --*open_; }

  void Begin() GYROSTAT_EXCLUDES(mutex_);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // One of the three is under way at any time: a read on the disk's thread, a wait for a place there, a write.
  void AskForPage() GYROSTAT_EXCLUDES(mutex_);
  void ReadPage() GYROSTAT_EXCLUDES(mutex_);
  void Go() GYROSTAT_EXCLUDES(mutex_);
  void End(const grpc::Status& status) GYROSTAT_EXCLUDES(mutex_);

  const ExportOptions options_;
  grpc::CallbackServerContext* const context_;
  engine::History* const history_;
  DiskPool* const disk_;
  Probe* const probe_;
  std::atomic<uint32_t>* const open_;
  std::atomic<bool> cancelled_{false};

  // Of whichever of the three is under way.
  engine::ReportPage page_;
  size_t next_ = 0;  // In page_.reports.
  model::AttemptId attempt_;
  bool any_ = false;  // attempt_ was told.
  v1::ExportChunk chunk_;

  base::Mutex mutex_;
  std::shared_ptr<ExportStream> self_ GYROSTAT_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> timer_ GYROSTAT_GUARDED_BY(mutex_);  // Of the wait, or of the write.
  bool ended_ GYROSTAT_GUARDED_BY(mutex_) = false;
};

}  // namespace gyrostat::rpc
