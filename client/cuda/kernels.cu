// The kernels for the device, and their launches (launch.h).
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "client/cuda/arithmetic.h"
#include "client/cuda/launch.h"

#define GYROSTAT_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]

namespace gyrostat::cuda {

template <typename T>
struct Matrix;
template <>
struct Matrix<Half> {
  using Element = __half;
};
template <>
struct Matrix<Bf16> {
  using Element = __nv_bfloat16;
};

}  // namespace gyrostat::cuda

#include "client/cuda/kernels.h"

namespace gyrostat::cuda {
namespace {

static_assert(sizeof(Moments) == sizeof(gyro_cuda_moments) && sizeof(Workspace) == GYRO_CUDA_WORKSPACE_BYTES, "");
static_assert(sizeof(RowBlock) == sizeof(gyro_cuda_rows) && kRowsMax == kRowBlocksMax, "");

__global__ void FillAbsent(float* to, size_t count) {
  for (size_t i = blockIdx.x * static_cast<size_t>(kThreads) + threadIdx.x; i < count;
       i += static_cast<size_t>(gridDim.x) * kThreads)
    to[i] = GYRO_ABSENT;
}

const char* Words(cudaError_t code) { return code == cudaSuccess ? nullptr : cudaGetErrorString(code); }

// Not <<< >>>: its errors are those of the whole process, ours are those of this launch.
template <typename... P, typename... A>
const char* Launch(void (*kernel)(P...), dim3 grid, int threads, size_t shared, void* stream, A... given) {
  static_assert(sizeof...(P) == sizeof...(A), "as many arguments as parameters");
  const auto function = reinterpret_cast<const void*>(kernel);
  if (shared > 32 * 1024) {  // With what the kernel has beside it, it may be more than a launch gets unasked.
    const cudaError_t code =
        cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (code != cudaSuccess) return Words(code);
  }
  const auto launch = [&](P... exact) {
    void* arguments[] = {static_cast<void*>(&exact)...};
    return cudaLaunchKernel(function, grid, dim3(static_cast<unsigned>(threads)), arguments, shared,
                            static_cast<cudaStream_t>(stream));
  };
  return Words(launch(given...));
}

template <typename T>
const char* AddMomentsOf(const void* values, size_t count, gyro_cuda_moments* moments, void* workspace, void* stream) {
  const size_t past = reinterpret_cast<uintptr_t>(values) % 16;
  const size_t head = std::min(count, past == 0 ? 0 : (16 - past) / sizeof(T));
  const size_t per_block = static_cast<size_t>(kThreads) * 4 * Packet<T>::kCount;
  const size_t blocks = std::clamp<size_t>(count / per_block, 1, kStatsBlocksMax);
  return Launch(&AddMoments<T>, dim3(static_cast<unsigned>(blocks)), kThreads, 0, stream,
                static_cast<const T*>(values), count, static_cast<int>(head), reinterpret_cast<Moments*>(moments),
                static_cast<Workspace*>(workspace));
}

template <typename T>
const char* ScaleRowsOf(const gyro_cuda_matrix& m, const gyro_cuda_matrix* master, const RowBlocks& blocks,
                        size_t count, void* stream) {
  const dim3 grid(static_cast<unsigned>((m.columns + kThreads - 1) / kThreads), static_cast<unsigned>(count), 8);
  float* const exact = master == nullptr ? nullptr : static_cast<float*>(master->values);
  const size_t stride = master == nullptr ? 0 : master->row_stride;
  return Launch(&ScaleRows<T>, grid, kThreads, 0, stream, static_cast<T*>(m.values), m.row_stride, exact, stride,
                m.columns, blocks);
}

}  // namespace

const char* Zero(void* to, size_t bytes, void* stream) {
  return Words(cudaMemsetAsync(to, 0, bytes, static_cast<cudaStream_t>(stream)));
}

const char* Absent(float* to, size_t count, void* stream) {
  const size_t blocks = std::clamp<size_t>((count + kThreads - 1) / kThreads, 1, kStatsBlocksMax);
  return Launch(&FillAbsent, dim3(static_cast<unsigned>(blocks)), kThreads, 0, stream, to, count);
}

const char* AddMoments(const void* values, size_t count, gyro_cuda_type type, gyro_cuda_moments* moments,
                       void* workspace, void* stream) {
  if (type == GYRO_CUDA_FP32) return AddMomentsOf<float>(values, count, moments, workspace, stream);
  if (type == GYRO_CUDA_BF16) return AddMomentsOf<Bf16>(values, count, moments, workspace, stream);
  return AddMomentsOf<Half>(values, count, moments, workspace, stream);
}

const char* MaxLogits(const gyro_cuda_attention& g, float* maxima, void* stream) {
  Attention a;
  a.q = g.q, a.k = g.k;
  a.q_batch_stride = g.q_batch_stride, a.q_head_stride = g.q_head_stride, a.q_token_stride = g.q_token_stride;
  a.k_batch_stride = g.k_batch_stride, a.k_head_stride = g.k_head_stride, a.k_token_stride = g.k_token_stride;
  a.heads = static_cast<int>(g.heads), a.kv_heads = static_cast<int>(g.kv_heads);
  a.head_dim = static_cast<int>(g.head_dim), a.scale = g.scale;
  a.sight = {static_cast<int>(g.q_tokens), static_cast<int>(g.k_tokens), g.causal};
  const dim3 grid((g.q_tokens + kTile - 1) / kTile, g.heads, g.batch);
  if (g.type == GYRO_CUDA_FP32) return Launch(&MaxLogits<float>, grid, kThreads, 0, stream, a, maxima);
  const size_t shared = MatrixBytes<Half>(a.head_dim);
  if (g.type == GYRO_CUDA_BF16)
    return Launch(&MaxLogitsMatrix<Bf16>, grid, kMatrixThreads, shared, stream, a, maxima);
  return Launch(&MaxLogitsMatrix<Half>, grid, kMatrixThreads, shared, stream, a, maxima);
}

const char* ScaleRows(const gyro_cuda_matrix& matrix, const gyro_cuda_matrix* master, const gyro_cuda_rows* rows,
                      size_t count, void* stream) {
  RowBlocks blocks = {};
  for (size_t i = 0; i < count; ++i) blocks.blocks[i] = {rows[i].row_begin, rows[i].rows, rows[i].factor};
  if (matrix.type == GYRO_CUDA_FP32) return ScaleRowsOf<float>(matrix, master, blocks, count, stream);
  if (matrix.type == GYRO_CUDA_BF16) return ScaleRowsOf<Bf16>(matrix, master, blocks, count, stream);
  return ScaleRowsOf<Half>(matrix, master, blocks, count, stream);
}

}  // namespace gyrostat::cuda
