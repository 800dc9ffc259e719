// The C ABI of libgyrostat_gloo.so: checks options, and joins the mesh with the thread that runs its rounds.
#include "gyrostat/gloo.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "client/collectives/gloo_mesh.h"
#include "client/collectives/round_worker.h"

using gyrostat::collectives::GlooMesh;
using gyrostat::collectives::Reduction;
using gyrostat::collectives::RoundWorker;

struct gyro_gloo {
  std::unique_ptr<RoundWorker> worker;  // Holds the mesh. Null: opening failed.
  std::string failed;                   // Why.
  pid_t process = getpid();             // A forked child has the connections and no thread: it leaves all alone.
};

namespace {

constexpr uint32_t kRanksMax = 4096, kConnectDefaultMs = 60000, kConnectMaxMs = 86400000;
constexpr size_t kPrefixMax = 100;

bool IsPrefix(const char* text) {
  if (text == nullptr) return false;
  const std::string_view prefix(text, strnlen(text, kPrefixMax + 1));
  return !prefix.empty() && prefix.size() <= kPrefixMax &&
         prefix.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
             std::string_view::npos;
}

std::string Wrong(const gyro_gloo_options& o) {
  if (o.size < 1 || o.size > kRanksMax) return "size is " + std::to_string(o.size) + ", wanted 1 to 4096";
  if (o.rank >= o.size)
    return "rank is " + std::to_string(o.rank) + ", wanted less than size, " + std::to_string(o.size);
  if ((o.directory == nullptr) == (o.store == nullptr)) return "wanted a directory or a store, and not both";
  if (o.store != nullptr && o.store->struct_size < sizeof(gyro_gloo_store))
    return "the store's struct_size is " + std::to_string(o.store->struct_size) + ", wanted " +
           std::to_string(sizeof(gyro_gloo_store));
  if (o.store != nullptr && (o.store->set == nullptr || o.store->get == nullptr)) return "the store lacks set or get";
  if (!IsPrefix(o.prefix)) return "prefix is missing or wrong, wanted 1 to 100 of A-Z a-z 0-9 . _ -";
  if (o.address != nullptr && o.interface_name != nullptr) return "wanted an address or an interface, and not both";
  if (o.connect_timeout_ms > kConnectMaxMs)
    return "connect_timeout_ms is " + std::to_string(o.connect_timeout_ms) + ", wanted at most 86400000";
  return "";
}

template <Reduction kind>
int Begin(void* context, float* lanes, size_t count) {
  auto* gloo = static_cast<gyro_gloo*>(context);
  return gloo->worker != nullptr && gloo->worker->Begin(kind, lanes, count) ? 0 : 1;
}
template <Reduction kind>
int Wait(void* context, float* lanes, size_t count) {
  auto* gloo = static_cast<gyro_gloo*>(context);
  return gloo->worker != nullptr && gloo->worker->Wait(kind, lanes, count) ? 0 : 1;
}
int RoundDone(void* context) {
  const auto* gloo = static_cast<gyro_gloo*>(context);
  return gloo->worker == nullptr || gloo->worker->Done() ? 1 : 0;
}

void Fill(gyro_collective* collective, gyro_gloo* gloo) {
  collective->context = gloo;
  collective->max_begin = &Begin<Reduction::kMax>;
  collective->max_wait = &Wait<Reduction::kMax>;
  if (collective->struct_size < offsetof(gyro_collective, round_done)) return;
  collective->sum_begin = &Begin<Reduction::kSum>;
  collective->sum_wait = &Wait<Reduction::kSum>;
  if (collective->struct_size < sizeof(gyro_collective)) return;
  collective->round_done = &RoundDone;
}

gyro_status Open(const gyro_gloo_options& asked, gyro_gloo* gloo) {
  gyro_gloo_options options{};
  std::memcpy(&options, &asked, std::min<size_t>(asked.struct_size, sizeof(options)));
  gloo->failed = Wrong(options);
  if (!gloo->failed.empty()) return GYRO_INVALID;
  if (options.connect_timeout_ms == 0) options.connect_timeout_ms = kConnectDefaultMs;
  std::shared_ptr<GlooMesh> mesh = GlooMesh::Connect(options, &gloo->failed);
  if (mesh == nullptr) return GYRO_UNAVAILABLE;
  gloo->worker = RoundWorker::Start(
      [mesh](Reduction kind, float* lanes, size_t count) { return mesh->Reduce(kind, lanes, count); }, &gloo->failed);
  return gloo->worker == nullptr ? GYRO_UNAVAILABLE : GYRO_OK;
}

}  // namespace

extern "C" {

gyro_status gyro_gloo_options_init(gyro_gloo_options* options) {
  if (options == nullptr) return GYRO_INVALID;
  *options = gyro_gloo_options{};
  options->struct_size = sizeof(*options);
  options->size = 1;
  return GYRO_OK;
}

gyro_status gyro_gloo_open(const gyro_gloo_options* options, gyro_collective* collective, gyro_gloo** gloo) try {
  if (options == nullptr || collective == nullptr || gloo == nullptr) return GYRO_INVALID;
  *gloo = nullptr;
  auto opened = std::make_unique<gyro_gloo>();
  const gyro_status status = Open(*options, opened.get());
  *gloo = opened.release();
  Fill(collective, *gloo);
  return status;
} catch (const std::bad_alloc&) {
  return GYRO_NO_MEMORY;
}

const char* gyro_gloo_error(const gyro_gloo* gloo) {
  if (gloo == nullptr) return "there is no collective";
  return gloo->worker != nullptr ? gloo->worker->error().c_str() : gloo->failed.c_str();
}

gyro_status gyro_gloo_close(gyro_gloo* gloo, uint32_t wait_ms) {
  if (gloo == nullptr) return GYRO_OK;
  if (gloo->process != getpid()) return GYRO_INACTIVE;
  if (gloo->worker != nullptr) gloo->worker->Finish(std::chrono::milliseconds(wait_ms));
  delete gloo;
  return GYRO_OK;
}

}  // extern "C"
