#include "support/fake_nccl.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>

namespace gyrostat::testing {
namespace {

using collectives::DeviceTable;
namespace c = collectives;

constexpr int kRefused = 1, kRemoteError = 6, kInvalid = 4, kUnsafeInCapture = 900;

struct Communicator;

// The ranks of one id.
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int, Communicator*> ranks;
  int size = 0;
  // The all-reduce that is under way.
  int arrived = 0, left = 0;
  uint64_t round = 0;
  int operation = 0;
  size_t count = 0;
  std::vector<float> result;
  bool mismatch = false;
};

struct Communicator {
  std::shared_ptr<World> world;
  int rank = 0;
  std::atomic<int> error = 0;
  bool aborted = false;  // Guarded by the world's mutex.
};

struct Event {
  std::shared_ptr<std::atomic<bool>> passed = std::make_shared<std::atomic<bool>>(true);
};

struct Universe {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<World>> worlds;
  std::set<void*> on_device, on_host, events;
  std::vector<std::unique_ptr<Communicator>> graves;  // Aborted ones: kernels may still look at them.
  int communicators = 0;
  unsigned ids = 0;
};
Universe& All() {
  static Universe& universe = *new Universe;  // What leaked stays reachable from here: it is counted, and no more.
  return universe;
}

thread_local std::vector<std::string> calls;
thread_local std::map<std::string, int> failures;
thread_local int group_depth = 0;
thread_local bool capturing = false, spoilt = false;
thread_local int capture_mode = 0;  // CUDA's: global.
thread_local std::vector<std::pair<FakeStream*, std::function<void()>>> group;

int Called(const std::string& what, const std::string& function) {
  calls.push_back(what);
  const auto found = failures.find(function);
  if (found == failures.end()) return 0;
  const int code = found->second;
  failures.erase(found);
  return code;
}

// On a stream's thread: meets the other ranks' streams and combines in the order of ranks arriving.
void Meet(Communicator* self, const float* from, float* to, size_t count, int operation) {
  World& world = *self->world;
  std::unique_lock lock(world.mutex);
  world.changed.wait(lock, [&] { return world.left == 0 || self->aborted; });  // All have left the last one.
  if (self->aborted) return;
  if (world.arrived == 0) {
    world.operation = operation;
    world.count = count;
    world.result.assign(from, from + count);
    world.mismatch = false;
  } else if (world.operation != operation || world.count != count) {
    world.mismatch = true;
  } else {
    for (size_t i = 0; i < count; ++i)
      world.result[i] = operation == c::kNcclMax ? std::max(world.result[i], from[i]) : world.result[i] + from[i];
  }
  const uint64_t round = world.round;
  if (++world.arrived == world.size) {
    world.arrived = 0;
    world.left = world.size;
    ++world.round;
    world.changed.notify_all();
  }
  world.changed.wait(lock, [&] { return world.round != round || self->aborted; });
  if (world.round == round) return;
  if (world.mismatch) self->error = kInvalid;
  std::copy_n(world.result.begin(), std::min(count, world.result.size()), to);
  if (--world.left == 0) world.changed.notify_all();
}

int MallocDevice(void** pointer, size_t size) {
  if (const int code = Called("malloc", "cudaMalloc")) return code;
  *pointer = std::malloc(size);
  std::lock_guard lock(All().mutex);
  All().on_device.insert(*pointer);
  return 0;
}
int FreeDevice(void* pointer) {
  Called("free", "cudaFree");
  std::lock_guard lock(All().mutex);
  if (All().on_device.erase(pointer) != 1) return kRefused;
  std::free(pointer);
  return 0;
}
int MallocHost(void** pointer, size_t size, unsigned) {
  if (const int code = Called("pin", "cudaHostAlloc")) return code;
  *pointer = std::malloc(size);
  std::lock_guard lock(All().mutex);
  All().on_host.insert(*pointer);
  return 0;
}
int FreeHost(void* pointer) {
  Called("unpin", "cudaFreeHost");
  std::lock_guard lock(All().mutex);
  if (All().on_host.erase(pointer) != 1) return kRefused;
  std::free(pointer);
  return 0;
}
int Copy(void* to, const void* from, size_t size, int kind, void* stream) {
  const bool out = kind == c::kCudaHostToDevice;
  if (const int code = Called(out ? "copy>" : "copy<", "cudaMemcpyAsync")) return code;
  {
    std::lock_guard lock(All().mutex);
    if (All().on_device.count(to) != (out ? 1u : 0u)) return kRefused;
    if (All().on_device.count(const_cast<void*>(from)) != (out ? 0u : 1u)) return kRefused;
  }
  static_cast<FakeStream*>(stream)->Queue([=] { std::memcpy(to, from, size); });
  return 0;
}
int EventCreate(void** event, unsigned) {
  if (const int code = Called("event", "cudaEventCreateWithFlags")) return code;
  *event = new Event;
  std::lock_guard lock(All().mutex);
  All().events.insert(*event);
  return 0;
}
int EventRecord(void* event, void* stream) {
  if (const int code = Called("record", "cudaEventRecord")) return code;
  auto passed = std::make_shared<std::atomic<bool>>(false);
  static_cast<Event*>(event)->passed = passed;
  static_cast<FakeStream*>(stream)->Queue([passed] { *passed = true; });
  return 0;
}
int EventQuery(void* event) {
  if (const int code = Called("query", "cudaEventQuery")) return code;
  if (capturing && capture_mode != c::kCudaCaptureRelaxed) {
    spoilt = true;
    return kUnsafeInCapture;
  }
  return *static_cast<Event*>(event)->passed ? c::kCudaSuccess : c::kCudaNotReady;
}
int ExchangeCaptureMode(int* mode) {
  std::swap(capture_mode, *mode);
  return 0;
}
int EventDestroy(void* event) {
  Called("event-", "cudaEventDestroy");
  std::lock_guard lock(All().mutex);
  if (All().events.erase(event) != 1) return kRefused;
  delete static_cast<Event*>(event);
  return 0;
}
const char* CudaError(int) { return "the fake device refused"; }

int UniqueId(gyro_nccl_id* id) {
  if (const int code = Called("id", "ncclGetUniqueId")) return code;
  std::lock_guard lock(All().mutex);
  std::memset(id->bytes, 0, sizeof(id->bytes));
  std::snprintf(reinterpret_cast<char*>(id->bytes), sizeof(id->bytes), "fake %u", ++All().ids);
  return 0;
}
std::string Name(const gyro_nccl_id& id) { return std::string(reinterpret_cast<const char*>(id.bytes)); }

int InitRank(void** communicator, int size, gyro_nccl_id id, int rank) {
  if (const int code = Called("init", "ncclCommInitRank")) return code;
  auto* made = new Communicator;
  {
    std::lock_guard lock(All().mutex);
    auto& world = All().worlds[Name(id)];
    if (world == nullptr) world = std::make_shared<World>();
    made->world = world;
    ++All().communicators;
  }
  made->rank = rank;
  World& world = *made->world;
  std::unique_lock lock(world.mutex);
  world.size = size;
  world.ranks[rank] = made;
  world.changed.notify_all();
  world.changed.wait(lock, [&] { return static_cast<int>(world.ranks.size()) == size; });
  *communicator = made;
  return 0;
}
int Leave(void* communicator, bool abort) {
  auto* self = static_cast<Communicator*>(communicator);
  {
    std::lock_guard lock(self->world->mutex);
    self->aborted = abort;
    self->world->changed.notify_all();
  }
  std::lock_guard lock(All().mutex);
  --All().communicators;
  All().graves.emplace_back(self);
  return 0;
}
int Destroy(void* communicator) {
  Called("destroy", "ncclCommDestroy");
  return Leave(communicator, false);
}
int Abort(void* communicator) {
  Called("abort", "ncclCommAbort");
  return Leave(communicator, true);
}
int AsyncError(void* communicator, int* code) {
  if (const int failed = Called("error?", "ncclCommGetAsyncError")) return failed;
  *code = static_cast<Communicator*>(communicator)->error;
  return 0;
}
int AllReduce(const void* from, void* to, size_t count, int type, int operation, void* communicator, void* stream) {
  const char* name = operation == c::kNcclMax ? "max " : "sum ";
  if (const int code = Called(name + std::to_string(count), "ncclAllReduce")) return code;
  if (type != c::kNcclFloat32) return kInvalid;
  auto* self = static_cast<Communicator*>(communicator);
  auto work = [=] { Meet(self, static_cast<const float*>(from), static_cast<float*>(to), count, operation); };
  if (group_depth > 0) group.emplace_back(static_cast<FakeStream*>(stream), work);
  else static_cast<FakeStream*>(stream)->Queue(work);
  return 0;
}
int GroupStart() {
  if (const int code = Called("group(", "ncclGroupStart")) return code;
  ++group_depth;
  return 0;
}
int GroupEnd() {
  const int code = Called(")group", "ncclGroupEnd");
  if (--group_depth > 0) return code;
  for (auto& [stream, work] : std::exchange(group, {}))
    if (code == 0) stream->Queue(std::move(work));
  return code;
}
const char* NcclError(int code) { return code == kRemoteError ? "a remote process is gone" : "the fake refused"; }

}  // namespace

FakeStream::FakeStream() : thread_([this] { Run(); }) {}
FakeStream::~FakeStream() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    work_.clear();
    changed_.notify_all();
  }
  thread_.join();
}
void FakeStream::Queue(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  changed_.notify_all();
}
void FakeStream::Close() {
  Queue([this] {
    std::unique_lock lock(mutex_);
    open_ = false;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ || ending_; });
  });
}
void FakeStream::Open() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !open_; });  // Until the stream has come to the closing.
  open_ = true;
  changed_.notify_all();
}
void FakeStream::Drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return work_.empty() && !busy_; });
}
void FakeStream::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !work_.empty(); });
    if (ending_) return;
    auto work = std::move(work_.front());
    work_.pop_front();
    busy_ = true;
    lock.unlock();
    work();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

const DeviceTable& FakeNccl::Table() {
  static const DeviceTable table = {&MallocDevice, &FreeDevice, &MallocHost, &FreeHost,   &Copy,
                                    &EventCreate,  &EventRecord, &EventQuery, &ExchangeCaptureMode, &EventDestroy,
                                    &CudaError,    &UniqueId,    &InitRank,   &Destroy,    &Abort,
                                    &AsyncError,   &AllReduce,   &GroupStart, &GroupEnd,   &NcclError};
  return table;
}
std::vector<std::string> FakeNccl::Calls() { return std::exchange(calls, {}); }
void FakeNccl::FailNext(const std::string& function, int code) { failures[function] = code; }
void FakeNccl::Kill(const gyro_nccl_id& id, int rank) {
  std::unique_lock all(All().mutex);
  const std::shared_ptr<World> world = All().worlds.at(Name(id));
  all.unlock();
  std::lock_guard lock(world->mutex);
  for (auto& [other, communicator] : world->ranks)
    if (other != rank) communicator->error = kRemoteError;
}
void FakeNccl::Capture(bool on) { capturing = on, spoilt = false; }
bool FakeNccl::CaptureIsSpoilt() { return spoilt; }
int FakeNccl::Outstanding() {
  std::lock_guard lock(All().mutex);
  const Universe& all = All();
  return all.communicators + static_cast<int>(all.on_device.size() + all.on_host.size() + all.events.size());
}

}  // namespace gyrostat::testing

// By the names that a library of the real things has, so that this one can be loaded in their place.
extern "C" {

using gyrostat::testing::FakeNccl;
#define GYROSTAT_EXPORT __attribute__((visibility("default")))
GYROSTAT_EXPORT int cudaMalloc(void** p, size_t n) { return FakeNccl::Table().malloc_device(p, n); }
GYROSTAT_EXPORT int cudaFree(void* p) { return FakeNccl::Table().free_device(p); }
GYROSTAT_EXPORT int cudaHostAlloc(void** p, size_t n, unsigned f) { return FakeNccl::Table().malloc_host(p, n, f); }
GYROSTAT_EXPORT int cudaFreeHost(void* p) { return FakeNccl::Table().free_host(p); }
GYROSTAT_EXPORT int cudaMemcpyAsync(void* to, const void* from, size_t n, int kind, void* stream) {
  return FakeNccl::Table().copy(to, from, n, kind, stream);
}
GYROSTAT_EXPORT int cudaEventCreateWithFlags(void** e, unsigned f) { return FakeNccl::Table().event_create(e, f); }
GYROSTAT_EXPORT int cudaEventRecord(void* e, void* stream) { return FakeNccl::Table().event_record(e, stream); }
GYROSTAT_EXPORT int cudaEventQuery(void* e) { return FakeNccl::Table().event_query(e); }
GYROSTAT_EXPORT int cudaThreadExchangeStreamCaptureMode(int* mode) {
  return FakeNccl::Table().exchange_capture_mode(mode);
}
GYROSTAT_EXPORT int cudaEventDestroy(void* e) { return FakeNccl::Table().event_destroy(e); }
GYROSTAT_EXPORT const char* cudaGetErrorString(int code) { return FakeNccl::Table().cuda_error(code); }
GYROSTAT_EXPORT int ncclGetUniqueId(gyro_nccl_id* id) { return FakeNccl::Table().unique_id(id); }
GYROSTAT_EXPORT int ncclCommInitRank(void** c, int size, gyro_nccl_id id, int rank) {
  return FakeNccl::Table().init_rank(c, size, id, rank);
}
GYROSTAT_EXPORT int ncclCommDestroy(void* c) { return FakeNccl::Table().destroy(c); }
GYROSTAT_EXPORT int ncclCommAbort(void* c) { return FakeNccl::Table().abort(c); }
GYROSTAT_EXPORT int ncclCommGetAsyncError(void* c, int* e) { return FakeNccl::Table().async_error(c, e); }
GYROSTAT_EXPORT int ncclAllReduce(const void* from, void* to, size_t n, int type, int op, void* c, void* stream) {
  return FakeNccl::Table().all_reduce(from, to, n, type, op, c, stream);
}
GYROSTAT_EXPORT int ncclGroupStart() { return FakeNccl::Table().group_start(); }
GYROSTAT_EXPORT int ncclGroupEnd() { return FakeNccl::Table().group_end(); }
GYROSTAT_EXPORT const char* ncclGetErrorString(int code) { return FakeNccl::Table().nccl_error(code); }

}  // extern "C"
