// A double of CUDA's way of running kernels, since there may be no GPU: compiles client/cuda/kernels.h for the host and
// runs a grid block by block. A block's threads are fibers on one thread, each running until the next barrier: code
// that needs a barrier and has none reads what is not there yet, as it might on a device. Barriers of a warp are
// barriers of the block, so they must not stand where warps part. A fragment of the matrix units is held whole by every
// thread.
//
// One thread of the host at a time.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "client/cuda/arithmetic.h"

#define __global__
#define __device__
#define __shared__ static  // Blocks run one after the other.
#define GYROSTAT_DYNAMIC_SHARED(name) unsigned char* const name = gyrostat::testing::Grid::Shared()

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
inline dim3 threadIdx{0, 0, 0}, blockIdx{0, 0, 0}, gridDim;

namespace gyrostat::testing {

class Grid {
 public:
  // Runs `kernel` in every thread of every block. `order` changes in which order a block's threads take their turns: -1
  // is the last first.
  static void Run(dim3 grid, unsigned threads, size_t shared_bytes, int order, const std::function<void()>& kernel) {
    Grid& self = The();
    gridDim = grid;
    self.shared_.assign(shared_bytes / sizeof(Line) + 1, Line{});
    for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
      for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
        for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) self.RunBlock(threads, order, kernel);
  }
  static unsigned char* Shared() { return The().shared_.front().bytes; }
  static void Barrier() {
    Grid& self = The();
    Fiber& fiber = *self.fibers_[self.running_];
    swapcontext(&fiber.here, &self.scheduler_);
    threadIdx.x = self.running_;
  }

 private:
  static constexpr size_t kStackBytes = 256 * 1024;
  struct alignas(64) Line {
    unsigned char bytes[64];
  };
  struct Fiber {
    ucontext_t here;
    std::vector<unsigned char> stack = std::vector<unsigned char>(kStackBytes);
    bool done = false;
  };

  static Grid& The() {
    static Grid grid;
    return grid;
  }
  static void Entry() {
    Grid& self = The();
    (*self.kernel_)();
    self.fibers_[self.running_]->done = true;
    swapcontext(&self.fibers_[self.running_]->here, &self.scheduler_);
  }
  void RunBlock(unsigned threads, int order, const std::function<void()>& kernel) {
    kernel_ = &kernel;
    while (fibers_.size() < threads) fibers_.push_back(std::make_unique<Fiber>());
    for (unsigned i = 0; i < threads; ++i) {
      Fiber& fiber = *fibers_[i];
      getcontext(&fiber.here);
      fiber.here.uc_stack.ss_sp = fiber.stack.data();
      fiber.here.uc_stack.ss_size = fiber.stack.size();
      fiber.here.uc_link = nullptr;
      fiber.done = false;
      makecontext(&fiber.here, &Grid::Entry, 0);
    }
    for (unsigned done = 0; done < threads;) {
      done = 0;
      for (unsigned turn = 0; turn < threads; ++turn) {
        running_ = order < 0 ? threads - 1 - turn : turn;
        threadIdx.x = running_;
        if (!fibers_[running_]->done) swapcontext(&scheduler_, &fibers_[running_]->here);
        done += fibers_[running_]->done ? 1 : 0;
      }
    }
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Line> shared_;
  ucontext_t scheduler_;
  const std::function<void()>* kernel_ = nullptr;
  unsigned running_ = 0;
};

}  // namespace gyrostat::testing

inline void __syncthreads() { gyrostat::testing::Grid::Barrier(); }
inline void __syncwarp() { gyrostat::testing::Grid::Barrier(); }
inline void __threadfence() {}
inline unsigned atomicInc(unsigned* at, unsigned limit) {
  const unsigned before = *at;
  *at = before >= limit ? 0 : before + 1;
  return before;
}
inline unsigned atomicCAS(unsigned* at, unsigned expected, unsigned value) {
  const unsigned before = *at;
  if (before == expected) *at = value;
  return before;
}

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major };

template <typename Use, int M, int N, int K, typename T, typename Layout = void>
struct fragment {
  static constexpr int num_elements = 256;
  float x[256];  // Row by row.
};
template <typename F>
void fill_fragment(F& f, float value) {
  for (float& x : f.x) x = value;
}
template <typename T>
void load_matrix_sync(fragment<matrix_a, 16, 16, 16, T, row_major>& f, const T* from, unsigned ld) {
  for (unsigned i = 0; i < 256; ++i) f.x[i] = gyrostat::cuda::ToFloat(from[i / 16 * ld + i % 16]);
}
template <typename T>
void load_matrix_sync(fragment<matrix_b, 16, 16, 16, T, col_major>& f, const T* from, unsigned ld) {
  for (unsigned i = 0; i < 256; ++i) f.x[i] = gyrostat::cuda::ToFloat(from[i % 16 * ld + i / 16]);
}
template <typename A, typename B, typename C>
void mma_sync(C& d, const A& a, const B& b, const C& c) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      float sum = c.x[i * 16 + j];
      for (int k = 0; k < 16; ++k) sum += a.x[i * 16 + k] * b.x[k * 16 + j];
      d.x[i * 16 + j] = sum;
    }
}
template <typename C>
void store_matrix_sync(float* to, const C& c, unsigned ld, layout_t) {
  for (unsigned i = 0; i < 256; ++i) to[i / 16 * ld + i % 16] = c.x[i];
}

}  // namespace nvcuda::wmma

namespace gyrostat::cuda {

template <typename T>
struct Matrix {
  using Element = T;
};

}  // namespace gyrostat::cuda
