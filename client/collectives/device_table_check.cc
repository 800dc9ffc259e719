// Holds the table against the real headers; compiled where both are found, and nothing but assertions.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <tuple>
#include <type_traits>

#include "client/collectives/device_table.h"

namespace gyrostat::collectives {
namespace {

// Passed alike: pointers as pointers, integers and enumerations of one size, structs of one size and alignment that are
// plain bytes.
template <typename Ours, typename Theirs>
constexpr bool Alike() {
  constexpr bool kPointers = std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>;
  constexpr bool kIntegers = (std::is_integral_v<Ours> || std::is_enum_v<Ours>) &&
                             (std::is_integral_v<Theirs> || std::is_enum_v<Theirs>);
  constexpr bool kStructs = std::is_class_v<Ours> && std::is_class_v<Theirs> &&
                            std::is_trivially_copyable_v<Ours> && std::is_trivially_copyable_v<Theirs>;
  return (kPointers || kIntegers || kStructs) && sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
}

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
  requires(sizeof...(A) == sizeof...(B))
struct SameCall<R (*)(A...), S (*)(B...)> : std::bool_constant<Alike<R, S>() && (Alike<A, B>() && ...)> {};

// Several of CUDA's functions have C++ overloads beside the C one.
#define GYROSTAT_SAME(field, function, ...) \
  static_assert(SameCall<decltype(DeviceTable::field), __VA_ARGS__>::value && \
                    sizeof(static_cast<__VA_ARGS__>(&function)) != 0, #function " is called otherwise")

GYROSTAT_SAME(malloc_device, cudaMalloc, cudaError_t (*)(void**, size_t));
GYROSTAT_SAME(free_device, cudaFree, cudaError_t (*)(void*));
GYROSTAT_SAME(malloc_host, cudaHostAlloc, cudaError_t (*)(void**, size_t, unsigned));
GYROSTAT_SAME(free_host, cudaFreeHost, cudaError_t (*)(void*));
GYROSTAT_SAME(copy, cudaMemcpyAsync, cudaError_t (*)(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t));
GYROSTAT_SAME(event_create, cudaEventCreateWithFlags, cudaError_t (*)(cudaEvent_t*, unsigned));
GYROSTAT_SAME(event_record, cudaEventRecord, cudaError_t (*)(cudaEvent_t, cudaStream_t));
GYROSTAT_SAME(event_query, cudaEventQuery, cudaError_t (*)(cudaEvent_t));
GYROSTAT_SAME(exchange_capture_mode, cudaThreadExchangeStreamCaptureMode, cudaError_t (*)(cudaStreamCaptureMode*));
GYROSTAT_SAME(event_destroy, cudaEventDestroy, cudaError_t (*)(cudaEvent_t));
GYROSTAT_SAME(cuda_error, cudaGetErrorString, const char* (*)(cudaError_t));
GYROSTAT_SAME(unique_id, ncclGetUniqueId, decltype(&ncclGetUniqueId));
GYROSTAT_SAME(init_rank, ncclCommInitRank, decltype(&ncclCommInitRank));
GYROSTAT_SAME(destroy, ncclCommDestroy, decltype(&ncclCommDestroy));
GYROSTAT_SAME(abort, ncclCommAbort, decltype(&ncclCommAbort));
GYROSTAT_SAME(async_error, ncclCommGetAsyncError, decltype(&ncclCommGetAsyncError));
GYROSTAT_SAME(all_reduce, ncclAllReduce, decltype(&ncclAllReduce));
GYROSTAT_SAME(group_start, ncclGroupStart, decltype(&ncclGroupStart));
GYROSTAT_SAME(group_end, ncclGroupEnd, decltype(&ncclGroupEnd));
GYROSTAT_SAME(nccl_error, ncclGetErrorString, decltype(&ncclGetErrorString));

static_assert(kCudaSuccess == cudaSuccess && kCudaNotReady == cudaErrorNotReady);
static_assert(kCudaHostToDevice == cudaMemcpyHostToDevice && kCudaDeviceToHost == cudaMemcpyDeviceToHost);
static_assert(kCudaEventDisableTiming == cudaEventDisableTiming);
static_assert(kCudaCaptureRelaxed == cudaStreamCaptureModeRelaxed && sizeof(cudaStreamCaptureMode) == sizeof(int));
static_assert(kNcclSuccess == ncclSuccess && kNcclInProgress == ncclInProgress);
static_assert(kNcclFloat32 == ncclFloat32 && kNcclSum == ncclSum && kNcclMax == ncclMax);
static_assert(sizeof(gyro_nccl_id) == sizeof(ncclUniqueId) && sizeof(gyro_nccl_id) == NCCL_UNIQUE_ID_BYTES);

}  // namespace
}  // namespace gyrostat::collectives
