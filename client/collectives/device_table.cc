#include "client/collectives/device_table.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>

namespace gyrostat::collectives {
namespace {

// The first that is loaded already, else the first that can be: a job has its own, and two runtimes need not meet.
void* Load(std::initializer_list<const char*> names, std::string* error) {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  for (const char* name : names)
    if (void* library = dlopen(name, kFlags | RTLD_NOLOAD)) return library;
  std::string why;
  for (const char* name : names) {
    if (void* library = dlopen(name, kFlags)) return library;
    const char* said = dlerror();
    why += (why.empty() ? "" : "; ") + std::string(said == nullptr ? name : said);
  }
  *error = "cannot be loaded: " + why;
  return nullptr;
}

// Finds functions of one library, and remembers the first that is missing.
class Finder {
 public:
  Finder(void* library, std::string* error) : library_(library), error_(error) {}

  template <typename Function>
  void Find(Function* to, const char* name) {
    void* const symbol = library_ == nullptr ? nullptr : dlsym(library_, name);
    if (symbol == nullptr && error_->empty()) *error_ = std::string("has no ") + name;
    static_assert(sizeof(*to) == sizeof(symbol));
    std::memcpy(to, &symbol, sizeof(symbol));
  }

 private:
  void* library_;
  std::string* error_;
};

void FindCuda(void* library, DeviceTable* table, std::string* error) {
  Finder finder(library, error);
  finder.Find(&table->malloc_device, "cudaMalloc");
  finder.Find(&table->free_device, "cudaFree");
  finder.Find(&table->malloc_host, "cudaHostAlloc");
  finder.Find(&table->free_host, "cudaFreeHost");
  finder.Find(&table->copy, "cudaMemcpyAsync");
  finder.Find(&table->event_create, "cudaEventCreateWithFlags");
  finder.Find(&table->event_record, "cudaEventRecord");
  finder.Find(&table->event_query, "cudaEventQuery");
  finder.Find(&table->exchange_capture_mode, "cudaThreadExchangeStreamCaptureMode");
  finder.Find(&table->event_destroy, "cudaEventDestroy");
  finder.Find(&table->cuda_error, "cudaGetErrorString");
}

void FindNccl(void* library, DeviceTable* table, std::string* error) {
  Finder finder(library, error);
  finder.Find(&table->unique_id, "ncclGetUniqueId");
  finder.Find(&table->init_rank, "ncclCommInitRank");
  finder.Find(&table->destroy, "ncclCommDestroy");
  finder.Find(&table->abort, "ncclCommAbort");
  finder.Find(&table->async_error, "ncclCommGetAsyncError");
  finder.Find(&table->all_reduce, "ncclAllReduce");
  finder.Find(&table->group_start, "ncclGroupStart");
  finder.Find(&table->group_end, "ncclGroupEnd");
  finder.Find(&table->nccl_error, "ncclGetErrorString");
}

}  // namespace

std::unique_ptr<DeviceTable> LoadDeviceTable(const gyro_nccl_libraries* libraries, std::string* error) {
  gyro_nccl_libraries named{};
  if (libraries != nullptr) std::memcpy(&named, libraries, std::min<size_t>(libraries->struct_size, sizeof(named)));
  auto table = std::make_unique<DeviceTable>();
  std::string why;
  void* const cuda = named.cudart != nullptr ? Load({named.cudart}, &why)
                                             : Load({"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}, &why);
  FindCuda(cuda, table.get(), &why);
  if (!why.empty()) {
    *error = "the CUDA runtime " + why;
    return nullptr;
  }
  void* const nccl = Load({named.nccl != nullptr ? named.nccl : "libnccl.so.2"}, &why);
  FindNccl(nccl, table.get(), &why);
  if (!why.empty()) {
    *error = "NCCL " + why;
    return nullptr;
  }
  return table;
}

}  // namespace gyrostat::collectives
