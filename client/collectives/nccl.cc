// The C ABI of libgyrostat_nccl.so: checks options, and runs rounds on the device with the libraries that it loads.
#include "gyrostat/nccl.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "client/collectives/device_rounds.h"
#include "client/collectives/device_table.h"

using gyrostat::collectives::DeviceRounds;
using gyrostat::collectives::DeviceRoundsOptions;
using gyrostat::collectives::DeviceTable;
using gyrostat::collectives::LoadDeviceTable;
using gyrostat::collectives::Reduction;

struct gyro_nccl {
  std::unique_ptr<DeviceRounds> rounds;  // Null: opening failed.
  std::string failed;                    // Why.
  pid_t process = getpid();              // A forked child leaves the device alone.
};

namespace {

constexpr uint64_t kLanesDefault = 262144, kLanesMax = uint64_t{1} << 26;

std::string Wrong(const gyro_nccl_options& o) {
  if (o.size < 1 || o.size > 0x7fffffff) return "size is " + std::to_string(o.size) + ", wanted at least 1";
  if (o.rank >= o.size)
    return "rank is " + std::to_string(o.rank) + ", wanted less than size, " + std::to_string(o.size);
  if ((o.id == nullptr) == (o.communicator == nullptr)) return "wanted an id or a communicator, and not both";
  if (o.sums != 0 && o.sums != 1) return "sums is " + std::to_string(o.sums) + ", wanted 0 or 1";
  if (o.lanes_max > kLanesMax)
    return "lanes_max is " + std::to_string(o.lanes_max) + ", wanted at most " + std::to_string(kLanesMax);
  return "";
}

template <Reduction kind>
int Begin(void* context, float* lanes, size_t count) {
  auto* nccl = static_cast<gyro_nccl*>(context);
  return nccl->rounds != nullptr && nccl->rounds->Begin(kind, lanes, count) ? 0 : 1;
}
template <Reduction kind>
int Wait(void* context, float* lanes, size_t count) {
  auto* nccl = static_cast<gyro_nccl*>(context);
  return nccl->rounds != nullptr && nccl->rounds->Wait(kind, lanes, count) ? 0 : 1;
}
int RoundDone(void* context) {
  const auto* nccl = static_cast<gyro_nccl*>(context);
  return nccl->rounds == nullptr || nccl->rounds->Done() ? 1 : 0;
}

void Fill(gyro_collective* collective, gyro_nccl* nccl, bool sums) {
  collective->context = nccl;
  collective->max_begin = &Begin<Reduction::kMax>;
  collective->max_wait = &Wait<Reduction::kMax>;
  if (collective->struct_size < offsetof(gyro_collective, round_done)) return;
  collective->sum_begin = sums ? &Begin<Reduction::kSum> : nullptr;
  collective->sum_wait = sums ? &Wait<Reduction::kSum> : nullptr;
  if (collective->struct_size < sizeof(gyro_collective)) return;
  collective->round_done = &RoundDone;
}

gyro_status Open(const gyro_nccl_options& o, gyro_nccl* nccl) {
  nccl->failed = Wrong(o);
  if (!nccl->failed.empty()) return GYRO_INVALID;
  const std::unique_ptr<DeviceTable> table = LoadDeviceTable(o.libraries, &nccl->failed);
  if (table == nullptr) return GYRO_UNAVAILABLE;
  const uint64_t lanes_max = o.lanes_max == 0 ? kLanesDefault : o.lanes_max;
  const DeviceRoundsOptions options = {.rank = static_cast<int>(o.rank),
                                       .size = static_cast<int>(o.size),
                                       .sums = o.sums == 1,
                                       .id = o.id,
                                       .communicator = o.communicator,
                                       .stream = o.stream,
                                       .lanes_max = static_cast<size_t>(lanes_max)};
  nccl->rounds = DeviceRounds::Open(*table, options, &nccl->failed);
  return nccl->rounds == nullptr ? GYRO_UNAVAILABLE : GYRO_OK;
}

}  // namespace

extern "C" {

gyro_status gyro_nccl_options_init(gyro_nccl_options* options) {
  if (options == nullptr) return GYRO_INVALID;
  *options = gyro_nccl_options{};
  options->struct_size = sizeof(*options);
  options->size = 1;
  return GYRO_OK;
}

gyro_status gyro_nccl_unique_id(const gyro_nccl_libraries* libraries, gyro_nccl_id* id, char* why,
                                size_t why_size) try {
  if (id == nullptr) return GYRO_INVALID;
  std::string error;
  const std::unique_ptr<DeviceTable> table = LoadDeviceTable(libraries, &error);
  const int code = table == nullptr ? 0 : table->unique_id(id);
  if (code != 0) error = std::string("ncclGetUniqueId failed: ") + table->nccl_error(code);
  if (why != nullptr && why_size > 0) std::snprintf(why, why_size, "%s", error.c_str());
  return error.empty() ? GYRO_OK : GYRO_UNAVAILABLE;
} catch (const std::bad_alloc&) {
  return GYRO_NO_MEMORY;
}

gyro_status gyro_nccl_open(const gyro_nccl_options* options, gyro_collective* collective, gyro_nccl** nccl) try {
  if (options == nullptr || collective == nullptr || nccl == nullptr) return GYRO_INVALID;
  *nccl = nullptr;
  gyro_nccl_options known{};
  std::memcpy(&known, options, std::min<size_t>(options->struct_size, sizeof(known)));
  auto opened = std::make_unique<gyro_nccl>();
  const gyro_status status = Open(known, opened.get());
  *nccl = opened.release();
  Fill(collective, *nccl, known.sums == 1);
  return status;
} catch (const std::bad_alloc&) {
  return GYRO_NO_MEMORY;
}

const char* gyro_nccl_error(const gyro_nccl* nccl) {
  if (nccl == nullptr) return "there is no collective";
  return nccl->rounds != nullptr ? nccl->rounds->error().c_str() : nccl->failed.c_str();
}

gyro_status gyro_nccl_close(gyro_nccl* nccl, uint32_t wait_ms) {
  if (nccl == nullptr) return GYRO_OK;
  if (nccl->process != getpid()) return GYRO_INACTIVE;
  if (nccl->rounds != nullptr) nccl->rounds->Finish(std::chrono::milliseconds(wait_ms));
  delete nccl;
  return GYRO_OK;
}

}  // extern "C"
