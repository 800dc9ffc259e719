#include "rpc/export_stream.h"

#include <utility>

#include "rpc/grpc_status.h"
#include "rpc/render.h"

namespace gyrostat::rpc {
namespace {

constexpr std::chrono::milliseconds kDiskWait{100};  // Before a full queue is asked again.

gpr_timespec After(std::chrono::milliseconds wait) { return gpr_time_from_millis(wait.count(), GPR_TIMESPAN); }

}  // namespace

ExportStream::ExportStream(ExportOptions options, grpc::CallbackServerContext* context, engine::History* history,
                           DiskPool* disk, Probe* probe, std::atomic<uint32_t>* open)
    : options_(std::move(options)), context_(context), history_(history), disk_(disk), probe_(probe), open_(open) {
  ++*open_;
}

void ExportStream::Begin() {
  {
    base::MutexLock lock(mutex_);
    self_ = shared_from_this();
  }
  AskForPage();
}

void ExportStream::AskForPage() {
  if (cancelled_) return End(grpc::Status(grpc::StatusCode::CANCELLED, "the reader has gone"));
  if (disk_->Submit([this] { ReadPage(); })) return;
  base::MutexLock lock(mutex_);
  timer_ = std::make_unique<grpc::Alarm>();
  timer_->Set(After(kDiskWait), [self = shared_from_this()](bool) { self->AskForPage(); });
}

void ExportStream::ReadPage() {
  absl::StatusOr<engine::ReportPage> page = history_->Reports(options_.query, page_.next);
  if (!page.ok()) return End(ToGrpc(page.status()));
  const uint64_t lost = page_.reports_lost;  // Of pages without reports.
  page_ = *std::move(page);
  page_.reports_lost += lost;
  next_ = 0;
  Go();
}

void ExportStream::Go() {
  if (next_ == page_.reports.size()) return page_.end ? End(grpc::Status::OK) : AskForPage();
  chunk_.Clear();
  if (!any_ || attempt_ != page_.attempt) {
    // A page is of one attempt, so this is the disk's thread.
    const absl::StatusOr<model::Hello> hello = history_->HelloOf(options_.query.run, page_.attempt);
    if (!hello.ok() && !absl::IsNotFound(hello.status())) return End(ToGrpc(hello.status()));
    ToWire(hello.ok() ? *hello : model::Hello(), page_.attempt, chunk_.mutable_attempt());
    attempt_ = page_.attempt;
    any_ = true;
  }
  chunk_.set_resolution(engine::Token(page_.resolution));
  chunk_.set_reports_lost(std::exchange(page_.reports_lost, 0));
  for (size_t bytes = 0; next_ < page_.reports.size() && bytes < kChunkBytes; ++next_) {
    v1::Report* report = chunk_.add_reports();
    ToWire(page_.reports[next_], options_.signals, report);
    bytes += report->ByteSizeLong();
  }
  base::MutexLock lock(mutex_);
  timer_ = std::make_unique<grpc::Alarm>();
  timer_->Set(After(options_.write_deadline), [self = shared_from_this()](bool fired) {
    if (!fired) return;
    base::MutexLock in_time(self->mutex_);
    if (self->ended_) return;
    self->probe_->readers_cut_total.Add();
    self->context_->TryCancel();  // The write under way then fails.
  });
  StartWrite(&chunk_);
}

void ExportStream::OnWriteDone(bool ok) {
  {
    base::MutexLock lock(mutex_);
    timer_.reset();
  }
  if (!ok) return End(grpc::Status(grpc::StatusCode::CANCELLED, "the stream broke"));
  Go();
}

void ExportStream::OnCancel() { cancelled_ = true; }

void ExportStream::End(const grpc::Status& status) {
  {
    base::MutexLock lock(mutex_);
    ended_ = true;
    timer_.reset();
  }
  Finish(status);
}

void ExportStream::OnDone() {
  std::shared_ptr<ExportStream> self;  // Let go after the lock.
  base::MutexLock lock(mutex_);
  ended_ = true;
  self = std::move(self_);
}

}  // namespace gyrostat::rpc
