#include "client/src/grpc_call.h"

#include <utility>
#include <vector>

namespace gyrostat::client {
namespace {

// Messages that may wait for the sender; then reading stops and the daemon feels it.
constexpr size_t kInboxMax = 256;
// What a cancelled call may take to say so before it is left behind.
constexpr base::Milliseconds kCancelGrace{5};

// Calls that have ended and wait for a thread that may destroy them: at most one per client closed before its call
// ended.
struct Aside {
  std::mutex mutex;
  std::vector<std::shared_ptr<GrpcCall>> calls;
};

// Outlives the process's static destruction: gRPC's threads may still call then.
Aside& TheAside() {
  static Aside* const aside = new Aside;
  return *aside;
}

}  // namespace

std::shared_ptr<GrpcCall> GrpcCall::Start(const std::string& address, const grpc::ChannelArguments& arguments) {
  auto call =
      std::make_shared<GrpcCall>(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  call->Begin();
  return call;
}

GrpcCall::GrpcCall(std::shared_ptr<grpc::Channel> channel)
    : channel_(std::move(channel)), stub_(v1::ReportService::NewStub(channel_)) {}

void GrpcCall::Begin() {
  const std::lock_guard<std::mutex> lock(mutex_);
  self_ = shared_from_this();
  stub_->async()->Stream(&context_, this);
  AddHold();
  ReadMoreLocked();
  StartCall();
}

bool GrpcCall::Connected() {
  if (!connected_) connected_ = channel_->GetState(false) == GRPC_CHANNEL_READY;
  return connected_;
}

bool GrpcCall::CanWrite() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return held_ && !writing_ && !closing_;
}

bool GrpcCall::Write() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!held_ || writing_ || closing_) return false;
  writing_ = true;
  StartWrite(&request_);
  return true;
}

bool GrpcCall::Read(v1::DaemonMessage* message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (inbox_.empty()) return false;
  *message = std::move(inbox_.front());
  inbox_.pop_front();
  ReadMoreLocked();
  return true;
}

bool GrpcCall::Ended(grpc::Status* status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!done_ || !inbox_.empty()) return false;  // What came before the end is still to be read.
  *status = status_;
  return true;
}

void GrpcCall::Close(base::Milliseconds budget, const base::Clock& clock) {
  const base::MonotonicTime deadline = clock.Now() + budget;
  std::unique_lock<std::mutex> lock(mutex_);
  closing_ = true;
  if (budget.count() > 0) {
    changed_.wait_until(lock, deadline, [this] { return !writing_ || done_; });
    if (held_ && !writing_) {
      writing_ = true;
      StartWritesDone();
    }
    LetGoLocked();
    changed_.wait_until(lock, deadline, [this] { return done_; });
  }
  if (done_) return;
  LetGoLocked();
  lock.unlock();
  context_.TryCancel();
  lock.lock();
  if (budget.count() > 0) changed_.wait_for(lock, kCancelGrace, [this] { return done_; });
}

void GrpcCall::Cancel() { context_.TryCancel(); }

void GrpcCall::ReadMoreLocked() {
  if (!held_ || reading_ || inbox_.size() >= kInboxMax) return;
  reading_ = true;
  StartRead(&response_);
}

void GrpcCall::LetGoLocked() {
  if (std::exchange(held_, false)) RemoveHold();
}

void GrpcCall::OnReadDone(bool ok) {
  const std::lock_guard<std::mutex> lock(mutex_);
  reading_ = false;
  if (!ok) return LetGoLocked();
  if (closing_) {  // Nobody reads any more; the daemon's own end must still be seen.
    reading_ = true;
    StartRead(&response_);
    return;
  }
  inbox_.push_back(std::move(response_));
  response_.Clear();
  ReadMoreLocked();
}

void GrpcCall::OnWriteDone(bool ok) {
  const std::lock_guard<std::mutex> lock(mutex_);
  writing_ = false;
  if (!ok) LetGoLocked();
  changed_.notify_all();
}

void GrpcCall::OnWritesDoneDone(bool) {
  const std::lock_guard<std::mutex> lock(mutex_);
  writing_ = false;
  changed_.notify_all();
}

void GrpcCall::OnDone(const grpc::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  done_ = true;
  status_ = status;
  LayAside(std::move(self_));
  changed_.notify_all();
}

void GrpcCall::LayAside(std::shared_ptr<GrpcCall> call) {
  const std::lock_guard<std::mutex> lock(TheAside().mutex);
  TheAside().calls.push_back(std::move(call));
}

void GrpcCall::Reap() {
  std::vector<std::shared_ptr<GrpcCall>> ended;
  {
    const std::lock_guard<std::mutex> lock(TheAside().mutex);
    ended.swap(TheAside().calls);
  }
  for (const std::shared_ptr<GrpcCall>& call : ended)
    const std::lock_guard<std::mutex> lock(call->mutex_);  // OnDone may still be inside.
}

}  // namespace gyrostat::client
