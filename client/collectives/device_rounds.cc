#include "client/collectives/device_rounds.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

namespace gyrostat::collectives {
namespace {

using std::chrono::microseconds;

// CUDA and NCCL cannot be waited for at once, so both are asked again and again: first at once, then ever less often,
// up to a fifth of a millisecond. A host that waits here is a whole step ahead of its device and loses nothing.
class Pauses {
 public:
  void Next() {
    if (asked_++ < 64) return;
    std::unique_lock lock(mutex_);
    never_.wait_for(lock, pause_);
    pause_ = std::min(pause_ * 2, microseconds(200));
  }

 private:
  int asked_ = 0;
  microseconds pause_{2};
  std::mutex mutex_;
  std::condition_variable never_;
};

}  // namespace

std::unique_ptr<DeviceRounds> DeviceRounds::Open(const DeviceTable& table, const DeviceRoundsOptions& options,
                                                 std::string* error) {
  std::unique_ptr<DeviceRounds> rounds(new DeviceRounds(table, options));
  if (rounds->Prepare()) return rounds;
  *error = rounds->error_;
  return nullptr;
}

bool DeviceRounds::Prepare() {
  const size_t bytes = options_.lanes_max * sizeof(float);
  for (Lane& lane : lanes_) {
    if (&lane != lanes_ && !options_.sums) break;
    void* host = nullptr;
    void* device = nullptr;
    if (!Cuda(table_.malloc_host(&host, bytes, 0), "cudaHostAlloc")) return false;
    lane.host = static_cast<float*>(host);
    if (!Cuda(table_.malloc_device(&device, bytes), "cudaMalloc")) return false;
    lane.device = static_cast<float*>(device);
  }
  if (!Cuda(table_.event_create(&event_, kCudaEventDisableTiming), "cudaEventCreateWithFlags")) return false;
  if (options_.communicator != nullptr) {
    communicator_ = options_.communicator;
    return true;
  }
  return Nccl(table_.init_rank(&communicator_, options_.size, *options_.id, options_.rank), "ncclCommInitRank");
}

DeviceRounds::~DeviceRounds() {
  const bool over = Finish(std::chrono::milliseconds(0));
  const bool ours = options_.communicator == nullptr && communicator_ != nullptr;
  if (ours && over) table_.destroy(communicator_);
  else if (ours) table_.abort(communicator_);
  if (!over) return;  // The stream may still write to them.
  if (event_ != nullptr) table_.event_destroy(event_);
  for (const Lane& lane : lanes_) {
    if (lane.device != nullptr) table_.free_device(lane.device);
    if (lane.host != nullptr) table_.free_host(lane.host);
  }
}

bool DeviceRounds::Fail(const std::string& why) {
  if (!failed_) error_ = why;
  failed_ = true;
  if (options_.communicator == nullptr && communicator_ != nullptr) table_.abort(std::exchange(communicator_, nullptr));
  return false;
}

bool DeviceRounds::Cuda(int code, const char* call) {
  return code == kCudaSuccess || Fail(std::string(call) + " failed: " + table_.cuda_error(code));
}

bool DeviceRounds::Nccl(int code, const char* call) {
  return code == kNcclSuccess || Fail(std::string(call) + " failed: " + table_.nccl_error(code));
}

bool DeviceRounds::Begin(Reduction kind, const float* lanes, size_t count) {
  if (failed_) return false;
  if (kind == Reduction::kSum && !options_.sums) {
    error_ = "a SUM was begun, and sums is 0";
    return false;
  }
  Lane& lane = lanes_[static_cast<int>(kind)];
  if (lane.state != Lane::kIdle) {
    error_ = std::string(Name(kind)) + " was begun before the last one was waited for";
    return false;
  }
  // The other ranks launch theirs: from here on this one is out of step.
  if (count > options_.lanes_max)
    return Fail(std::string(Name(kind)) + " has " + std::to_string(count) + " lanes, wanted at most lanes_max, " +
                std::to_string(options_.lanes_max));
  std::memcpy(lane.host, lanes, count * sizeof(float));
  lane.count = count;
  lane.state = Lane::kStaged;
  return (options_.sums && kind == Reduction::kMax) || Launch();
}

bool DeviceRounds::Launch() {
  const bool queued = QueueStaged();
  // In any case: buffers are free again only behind what was queued.
  const int code = table_.event_record(event_, options_.stream);
  under_way_ = true;
  marked_ = code == kCudaSuccess;
  return queued && Cuda(code, "cudaEventRecord");
}

bool DeviceRounds::QueueStaged() {
  for (const Lane& lane : lanes_)
    if (lane.state == Lane::kStaged &&
        !Cuda(table_.copy(lane.device, lane.host, lane.count * sizeof(float), kCudaHostToDevice, options_.stream),
              "cudaMemcpyAsync to the device"))
      return false;
  if (!ReduceStaged()) return false;
  for (Lane& lane : lanes_) {
    if (lane.state != Lane::kStaged) continue;
    if (!Cuda(table_.copy(lane.host, lane.device, lane.count * sizeof(float), kCudaDeviceToHost, options_.stream),
              "cudaMemcpyAsync to the host"))
      return false;
    lane.state = Lane::kLaunched;
  }
  return true;
}

bool DeviceRounds::ReduceStaged() {
  if (!Nccl(table_.group_start(), "ncclGroupStart")) return false;
  int code = kNcclSuccess;
  for (const Reduction kind : {Reduction::kMax, Reduction::kSum}) {
    const Lane& lane = lanes_[static_cast<int>(kind)];
    if (lane.state != Lane::kStaged || code != kNcclSuccess) continue;
    code = table_.all_reduce(lane.device, lane.device, lane.count, kNcclFloat32,
                             kind == Reduction::kMax ? kNcclMax : kNcclSum, communicator_, options_.stream);
  }
  const int ended = table_.group_end();  // In any case: an open group would swallow the job's own calls.
  return Nccl(code, "ncclAllReduce") && Nccl(ended, "ncclGroupEnd");
}

bool DeviceRounds::Wait(Reduction kind, float* lanes, size_t count) {
  Lane& lane = lanes_[static_cast<int>(kind)];
  if (failed_) return false;
  if (lane.state == Lane::kIdle) {
    error_ = std::string(Name(kind)) + " was waited for and not begun";
    return false;
  }
  if (lane.state == Lane::kStaged && !Launch()) return false;
  if (!Await()) return false;
  lane.state = Lane::kIdle;
  if (lane.count != count) {
    error_ = std::string(Name(kind)) + " of " + std::to_string(lane.count) + " lanes was waited for with " +
             std::to_string(count);
    return false;
  }
  std::memcpy(lanes, lane.host, count * sizeof(float));
  return true;
}

int DeviceRounds::Query() const {
  int mode = kCudaCaptureRelaxed;  // In the others a query would spoil the capture.
  const int exchanged = table_.exchange_capture_mode(&mode);
  const int code = table_.event_query(event_);
  if (exchanged == kCudaSuccess) table_.exchange_capture_mode(&mode);
  return code;
}

bool DeviceRounds::Done() const {
  if (failed_) return true;
  for (const Lane& lane : lanes_)
    if (lane.state == Lane::kStaged) return false;
  return !under_way_ || Query() == kCudaSuccess;
}

bool DeviceRounds::Await() {
  Pauses pauses;
  while (under_way_) {
    const int code = Query();
    if (code == kCudaSuccess) under_way_ = false;
    else if (code != kCudaNotReady) return Cuda(code, "cudaEventQuery");
    int error = kNcclSuccess;
    if (!Nccl(table_.async_error(communicator_, &error), "ncclCommGetAsyncError")) return false;
    if (error != kNcclInProgress && !Nccl(error, "an all-reduce")) return false;
    if (under_way_) pauses.Next();
  }
  return true;
}

bool DeviceRounds::Finish(std::chrono::milliseconds budget) {
  const auto end = std::chrono::steady_clock::now() + budget;
  Pauses pauses;
  while (under_way_) {
    if (marked_ && table_.event_query(event_) != kCudaNotReady) under_way_ = false;
    else if (!marked_ || std::chrono::steady_clock::now() >= end) return false;
    else pauses.Next();
  }
  return true;
}

}  // namespace gyrostat::collectives
