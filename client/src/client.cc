#include "client/src/client.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <new>
#include <utility>

#include "client/src/process.h"

namespace gyrostat::client {
namespace {

constexpr std::chrono::milliseconds kTurnEvery{1};
// Beyond the flush budget, for the sender to notice and the transport to cancel.
constexpr base::Milliseconds kGrace{15};

}  // namespace

Worker::Worker(std::shared_ptr<Shared> shared, const TransportApi* transport)
    : shared_(std::move(shared)), sender_(shared_.get(), transport, &base::SystemClock()) {}

bool Worker::Start(const std::shared_ptr<Worker>& self) {
  auto owned = std::make_unique<std::shared_ptr<Worker>>(self);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  // The job's signals are for the job's threads. The new thread, and all that gRPC starts from it, inherit the mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  SenderStarted();
  const bool started = pthread_create(&thread, &attributes, &Worker::Main, owned.get()) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (!started) {
    SenderStopped();
    return false;
  }
  static_cast<void>(owned.release());  // Main owns it now.
  return true;
}

void* Worker::Main(void* raw_self) {
  const std::unique_ptr<std::shared_ptr<Worker>> self(static_cast<std::shared_ptr<Worker>*>(raw_self));
  pthread_setname_np(pthread_self(), "gyrostat");
  try {
    (*self)->Run();
  } catch (const std::bad_alloc&) {  // Only memory can run out here; then training goes on unwatched.
    (*self)->shared_->counters.sender.error.Set("the sender ran out of memory and ended");
  }
  SenderStopped();
  const std::lock_guard<std::mutex> lock((*self)->mutex_);
  (*self)->finished_ = true;
  (*self)->changed_.notify_all();
  return nullptr;
}

void Worker::Run() {
  const base::Clock& clock = base::SystemClock();
  sender_.Open();
  for (;;) {
    if (Exiting()) ParkSender();
    sender_.Turn();
    bool stopping;
    base::MonotonicTime until;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping = stopping_;
      until = flush_until_;
    }
    if (stopping && (clock.Now() >= until || sender_.Settled())) {
      sender_.Close(std::chrono::duration_cast<base::Milliseconds>(until - clock.Now()));
      return;
    }
    Pause();
  }
}

void Worker::Pause() {
  std::unique_lock<std::mutex> lock(mutex_);
  // A stop wakes the sender once; while it flushes it looks again every millisecond, as ever.
  const bool before = stopping_;
  changed_.wait_for(lock, kTurnEvery, [&] { return stopping_ != before; });
}

bool Worker::Stop(base::Milliseconds flush) {
  const base::MonotonicTime now = base::SystemClock().Now();
  std::unique_lock<std::mutex> lock(mutex_);
  stopping_ = true;
  flush_until_ = now + flush;
  changed_.notify_all();
  return changed_.wait_until(lock, now + flush + kGrace, [this] { return finished_; });
}

}  // namespace gyrostat::client

gyro_client::gyro_client(gyrostat::client::Settings settings, const gyrostat::model::AttemptId& attempt)
    : shared(std::make_shared<gyrostat::client::Shared>(std::move(settings), attempt)),
      recorder(&shared->settings, &shared->frames, &shared->counters),
      actuator(&shared->settings, attempt, &shared->orders, &shared->records, &shared->counters) {}

gyro_client::~gyro_client() = default;

gyro_status gyro_client::Start(const gyrostat::client::TransportApi* transport) {
  auto started = std::make_shared<gyrostat::client::Worker>(shared, transport);
  if (!gyrostat::client::Worker::Start(started)) {
    shared->counters.training.error.Set("the system gives no thread for the sender");
    return GYRO_NO_MEMORY;
  }
  worker = std::move(started);
  if (lockstep != nullptr) lockstep->HasSender(Here());
  return GYRO_OK;
}

void gyro_client::Agree(const gyrostat::client::JoinResult& join) {
  lockstep = std::make_unique<gyrostat::client::Lockstep>(&shared->settings, join, &shared->frames, &shared->orders,
                                                          &shared->records, &shared->counters);
  recorder.HoldFrames(true);
  if (join.epoch == 0 && join.boundary == 0) return;
  recorder.GoTo(join.boundary);
  lockstep->GoOn(Here(), join, {});
}

gyro_status gyro_client::Rejoin(gyrostat::client::Settings next) {
  namespace gc = gyrostat::client;
  lockstep->Leave(Here());
  gc::Passage brought = lockstep->agreement().Leave(recorder.boundary());
  // The stream is the leader's: who has one stays rank 0, or nobody acts.
  gc::JoinResult join = gc::JoinRanks(next, {.attempt = brought.attempt,
                                             .epoch = brought.epoch,
                                             .boundary = brought.boundary,
                                             .ready = worker == nullptr || next.rank == 0});
  if (join.attempt.IsZero()) join.attempt = brought.attempt;
  auto settings = std::make_unique<gc::Settings>(std::move(next));
  auto renewed = std::make_unique<gc::Lockstep>(settings.get(), join, &shared->frames, &shared->orders,
                                                &shared->records, &shared->counters);
  if (worker != nullptr) renewed->HasSender(Here());
  if (!lockstep->hold().empty()) renewed->Hold(lockstep->hold().c_str());
  recorder.GoTo(join.boundary);
  lockstep = std::move(renewed);
  membership = std::move(settings);
  return lockstep->GoOn(Here(), join, std::move(brought));
}

gyrostat::client::BoundaryView gyro_client::Here() {
  gyrostat::client::BoundaryView view;
  view.boundary = recorder.boundary();
  view.step = recorder.step();
  view.frames_committed = recorder.frames_committed();
  constexpr auto kMaxima = gyrostat::model::Signal::kAttnLogitMax;
  if (const gyrostat::client::Frame* frame = recorder.last()) {
    view.maxima = {frame->Array(kMaxima), frame->Count(kMaxima)};
    view.kind = frame->logit_kind;
  } else {
    view.known = false;
  }
  return view;
}
