// The kernels. Included by kernels.cu, and by a test that runs them on the CPU (tests/support/cuda_on_cpu.h), so they
// use no intrinsic that the test does not have: shared memory, barriers, atomics, and the matrix units by nvcuda::wmma.
// The includer brings those, and Matrix<T>::Element, the type by which wmma knows T.
#pragma once

#include "client/cuda/arithmetic.h"

namespace gyrostat::cuda {

constexpr int kThreads = 256;
constexpr int kStatsBlocksMax = 1024;
constexpr int kTile = 64;          // Queries and keys of a tile of scores.
constexpr int kPad = 8;            // Elements between rows in shared memory, against bank conflicts.
constexpr int kMatrixThreads = 128;
constexpr int kRowBlocksMax = 128;

template <typename T>
struct alignas(16) Packet {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(T));
  T values[kCount];
};

// What blocks leave for the last one of them: GYRO_CUDA_WORKSPACE_BYTES.
struct Workspace {
  unsigned finished;  // Returns to 0 by itself.
  unsigned unused[3];
  Moments parts[kStatsBlocksMax];
};
static_assert(sizeof(Moments) == 32);

// Sums what the block's threads have, in a fixed order; the result is parts[0].
__device__ inline void ReduceBlock(Moments* parts) {
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) parts[threadIdx.x].Merge(parts[threadIdx.x + half]);
  }
  __syncthreads();
}

// `head` values come before the first whole packet; packets follow, then the rest.
template <typename T>
__global__ void AddMoments(const T* values, size_t count, int head, Moments* moments, Workspace* workspace) {
  __shared__ Moments parts[kThreads];
  __shared__ bool last;
  Moments mine = {};
  const size_t packets = (count - head) / Packet<T>::kCount;
  const auto* packed = reinterpret_cast<const Packet<T>*>(values + head);
  for (size_t i = blockIdx.x * static_cast<size_t>(kThreads) + threadIdx.x; i < packets;
       i += static_cast<size_t>(gridDim.x) * kThreads) {
    const Packet<T> packet = packed[i];
    float floats[Packet<T>::kCount];
    for (int k = 0; k < Packet<T>::kCount; ++k) floats[k] = ToFloat(packet.values[k]);
    mine.Add(floats);
  }
  const size_t rest = count - packets * Packet<T>::kCount;  // Fewer than two packets, at both ends.
  if (blockIdx.x == 0 && threadIdx.x < rest) {
    const size_t at = threadIdx.x < static_cast<size_t>(head) ? threadIdx.x : count - rest + threadIdx.x;
    const float one[1] = {ToFloat(values[at])};
    mine.Add(one);
  }
  parts[threadIdx.x] = mine;
  ReduceBlock(parts);
  if (threadIdx.x == 0) {
    workspace->parts[blockIdx.x] = parts[0];
    __threadfence();
    last = atomicInc(&workspace->finished, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  Moments total = {};
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kThreads) total.Merge(workspace->parts[i]);
  __syncthreads();
  parts[threadIdx.x] = total;
  ReduceBlock(parts);
  if (threadIdx.x == 0) moments->Merge(parts[0]);
}

// Where the rows of one head lie, and what of its tokens is seen.
struct Attention {
  const void* q;
  const void* k;
  size_t q_batch_stride, q_head_stride, q_token_stride;
  size_t k_batch_stride, k_head_stride, k_token_stride;
  int heads, kv_heads, head_dim;
  float scale;
  Sight sight;

  template <typename T>
  __device__ const T* Queries(unsigned batch, unsigned head) const {
    return static_cast<const T*>(q) + batch * q_batch_stride + head * q_head_stride;
  }
  template <typename T>
  __device__ const T* Keys(unsigned batch, unsigned head) const {
    const size_t kv_head = static_cast<size_t>(head) * kv_heads / heads;
    return static_cast<const T*>(k) + batch * k_batch_stride + kv_head * k_head_stride;
  }
};

__device__ inline void RaiseMaximum(float* maximum, float value) {
  auto* bits = reinterpret_cast<unsigned*>(maximum);
  unsigned seen = *bits;
  for (;;) {
    const float now = FloatOf(seen), raised = MaxOrNan(now, value);
    if (now != now || raised == now) return;
    const unsigned before = atomicCAS(bits, seen, BitsOf(raised));
    if (before == seen) return;
    seen = before;
  }
}

// The block's largest score, scaled, into the head's maximum. -Inf: none was seen.
__device__ inline void FinishMaximum(float* best, int threads, float scale, float* maximum) {
  for (int half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) best[threadIdx.x] = MaxOrNan(best[threadIdx.x], best[threadIdx.x + half]);
  }
  if (threadIdx.x == 0 && !(best[0] < -FLT_MAX)) RaiseMaximum(maximum, best[0] * scale);
}

// Any type on the ordinary units. Grid: query tiles, heads, batch. A thread holds 4 x 4 scores of a tile, and the tiles
// of the head dimension pass through shared memory.
template <typename T>
__global__ void MaxLogits(Attention a, float* maxima) {
  constexpr int kSlice = 16;
  __shared__ float q_slice[kSlice][kTile + 4], k_slice[kSlice][kTile + 4];
  __shared__ float best[kThreads];
  const T* const q = a.Queries<T>(blockIdx.z, blockIdx.y);
  const T* const k = a.Keys<T>(blockIdx.z, blockIdx.y);
  const int q_begin = static_cast<int>(blockIdx.x) * kTile;
  const int row = static_cast<int>(threadIdx.x) / 16 * 4, column = static_cast<int>(threadIdx.x) % 16 * 4;
  const int q_last = q_begin + kTile <= a.sight.q_tokens ? q_begin + kTile - 1 : a.sight.q_tokens - 1;
  const int keys = a.sight.Keys(q_last);
  float top = -INFINITY;
  for (int k_begin = 0; k_begin < keys; k_begin += kTile) {
    float scores[4][4] = {};
    for (int d = 0; d < a.head_dim; d += kSlice) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kTile * kSlice; i += kThreads) {
        const int token = i / kSlice, at = i % kSlice;
        const bool has_q = q_begin + token < a.sight.q_tokens, has_k = k_begin + token < a.sight.k_tokens;
        q_slice[at][token] = has_q ? ToFloat(q[(q_begin + token) * a.q_token_stride + d + at]) : 0;
        k_slice[at][token] = has_k ? ToFloat(k[(k_begin + token) * a.k_token_stride + d + at]) : 0;
      }
      __syncthreads();
      for (int at = 0; at < kSlice; ++at)
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 4; ++j) scores[i][j] += q_slice[at][row + i] * k_slice[at][column + j];
    }
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j)
        if (k_begin + column + j < a.sight.Keys(q_begin + row + i)) top = MaxOrNan(top, scores[i][j]);
  }
  best[threadIdx.x] = top;
  FinishMaximum(best, kThreads, a.scale, &maxima[blockIdx.y]);
}

// Rows [begin, begin + kTile) into shared memory, zeros where there are none.
template <typename T>
__device__ inline void LoadTile(const T* rows, size_t stride, int begin, int end, int head_dim, T* tile) {
  constexpr int kCount = Packet<T>::kCount;
  const int packets = head_dim / kCount;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * packets; i += kMatrixThreads) {
    const int token = i / packets, at = i % packets * kCount;
    Packet<T> packet = {};
    if (begin + token < end) packet = *reinterpret_cast<const Packet<T>*>(rows + (begin + token) * stride + at);
    *reinterpret_cast<Packet<T>*>(tile + token * (head_dim + kPad) + at) = packet;
  }
}

// 16-bit types on the matrix units, sums in fp32. Grid as above; each of four warps holds 16 queries x 64 keys. Dynamic
// shared memory: two tiles (MatrixBytes).
template <typename T>
__global__ void MaxLogitsMatrix(Attention a, float* maxima) {
  namespace wmma = nvcuda::wmma;
  using Element = typename Matrix<T>::Element;
  GYROSTAT_DYNAMIC_SHARED(memory);
  alignas(32) __shared__ float scratch[kMatrixThreads / 32][16 * 16];  // Matrix units want this of every pointer.
  __shared__ float best[kMatrixThreads];
  const int ld = a.head_dim + kPad;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  T* const q_tile = reinterpret_cast<T*>(memory);
  T* const k_tile = q_tile + kTile * ld;
  const T* const k = a.Keys<T>(blockIdx.z, blockIdx.y);
  const int q_begin = static_cast<int>(blockIdx.x) * kTile;
  LoadTile(a.Queries<T>(blockIdx.z, blockIdx.y), a.q_token_stride, q_begin, a.sight.q_tokens, a.head_dim, q_tile);
  const int q_last = q_begin + kTile <= a.sight.q_tokens ? q_begin + kTile - 1 : a.sight.q_tokens - 1;
  const int keys = a.sight.Keys(q_last);
  float top = -INFINITY;
  for (int k_begin = 0; k_begin < keys; k_begin += kTile) {
    __syncthreads();
    LoadTile(k, a.k_token_stride, k_begin, a.sight.k_tokens, a.head_dim, k_tile);
    __syncthreads();
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> scores[4];
    for (int n = 0; n < 4; ++n) wmma::fill_fragment(scores[n], 0.0f);
    for (int d = 0; d < a.head_dim; d += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, wmma::row_major> rows;
      wmma::load_matrix_sync(rows, reinterpret_cast<const Element*>(q_tile + warp * 16 * ld + d), ld);
      for (int n = 0; n < 4; ++n) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, wmma::col_major> columns;
        wmma::load_matrix_sync(columns, reinterpret_cast<const Element*>(k_tile + n * 16 * ld + d), ld);
        wmma::mma_sync(scores[n], rows, columns, scores[n]);
      }
    }
    if (a.sight.Whole(q_begin, kTile, k_begin, kTile)) {  // Who holds which score does not matter.
      for (int n = 0; n < 4; ++n)
        for (int i = 0; i < scores[n].num_elements; ++i) top = MaxOrNan(top, scores[n].x[i]);
      continue;
    }
    for (int n = 0; n < 4; ++n) {
      wmma::store_matrix_sync(scratch[warp], scores[n], 16, wmma::mem_row_major);
      __syncwarp();
      for (int i = lane; i < 16 * 16; i += 32) {
        const int query = q_begin + warp * 16 + i / 16, key = k_begin + n * 16 + i % 16;
        if (key < a.sight.Keys(query)) top = MaxOrNan(top, scratch[warp][i]);
      }
      __syncwarp();
    }
  }
  best[threadIdx.x] = top;
  FinishMaximum(best, kMatrixThreads, a.scale, &maxima[blockIdx.y]);
}

template <typename T>
inline size_t MatrixBytes(int head_dim) {
  return 2 * sizeof(T) * kTile * static_cast<size_t>(head_dim + kPad);
}

// As gyro_cuda_rows; by value in the launch, so that the host's may go.
struct RowBlock {
  uint64_t row_begin;
  uint32_t rows;
  float factor;
};
struct RowBlocks {
  RowBlock blocks[kRowBlocksMax];
};

// Grid: columns, blocks, slices of rows.
template <typename T>
__global__ void ScaleRows(T* matrix, size_t stride, float* master, size_t master_stride, size_t columns,
                          RowBlocks all) {
  const size_t column = blockIdx.x * static_cast<size_t>(kThreads) + threadIdx.x;
  const RowBlock& block = all.blocks[blockIdx.y];
  if (column >= columns) return;
  for (uint64_t row = block.row_begin + blockIdx.z; row < block.row_begin + block.rows; row += gridDim.z) {
    T* const value = matrix + row * stride + column;
    if (master == nullptr) {
      *value = Scaled(*value, block.factor);
    } else {
      float* const exact = master + row * master_stride + column;
      *exact = *exact * block.factor;
      *value = FromFloat<T>(*exact);
    }
  }
}

}  // namespace gyrostat::cuda
