// libgyrostat_cuda.so: what it refuses, everywhere; on a device its kernels against plain code, that calls queue and
// return, and how fast they are beside a copy in the same run (printed, not judged).
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "gyrostat/cuda.h"
#include "support/cuda_reference.h"

namespace gyrostat::cuda {
namespace {

template <typename T>
constexpr gyro_cuda_type kType = GYRO_CUDA_FP32;
template <>
constexpr gyro_cuda_type kType<Bf16> = GYRO_CUDA_BF16;
template <>
constexpr gyro_cuda_type kType<Half> = GYRO_CUDA_FP16;

// Device memory with what a vector holds.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : count_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, count_ * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  explicit OnDevice(size_t count) : OnDevice(std::vector<T>(count)) {}
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  void* data_ = nullptr;
  size_t count_;
};

class CudaDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    if (code != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device here: " << cudaGetErrorString(code);
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
  }
  void TearDown() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  template <typename T>
  void Moments(size_t count, size_t from) {
    std::vector<T> values = Random<T>(count, static_cast<uint32_t>(count), 20);
    if (count > 1000) values[50] = FromFloat<T>(NAN), values[990] = FromFloat<T>(-INFINITY);
    const OnDevice<T> data(values);
    const OnDevice<unsigned char> workspace(GYRO_CUDA_WORKSPACE_BYTES);
    gyro_cuda_moments brought[2];
    for (gyro_cuda_moments& each : brought) {
      const OnDevice<gyro_cuda_moments> moments(1);
      ASSERT_EQ(gyro_cuda_add_moments(data.data() + from, count - from, kType<T>, moments.data(), workspace.data(),
                                      stream_), GYRO_OK) << gyro_cuda_error();
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      each = moments.Read()[0];
    }
    EXPECT_EQ(std::memcmp(&brought[0], &brought[1], sizeof(brought[0])), 0);  // The same bits again.
    ReferenceMoments wanted;
    wanted.Add(values, from);
    EXPECT_EQ(brought[0].count, wanted.count);
    EXPECT_EQ(brought[0].nonfinite, wanted.nonfinite);
    EXPECT_EQ(brought[0].abs_max, wanted.abs_max);
    EXPECT_NEAR(brought[0].sum_squares / static_cast<double>(wanted.sum_squares), 1, 1e-6);
  }

  template <typename T>
  std::vector<float> Maxima(const AttentionCase& c, const std::vector<T>& q, const std::vector<T>& k) {
    const OnDevice<T> on_q(q), on_k(k);
    const OnDevice<float> maxima(static_cast<size_t>(c.heads));
    gyro_cuda_attention a{};
    a.struct_size = sizeof(a);
    a.type = kType<T>;
    a.batch = static_cast<uint32_t>(c.batch), a.heads = static_cast<uint32_t>(c.heads);
    a.kv_heads = static_cast<uint32_t>(c.kv_heads), a.head_dim = static_cast<uint32_t>(c.head_dim);
    a.q_tokens = static_cast<uint32_t>(c.q_tokens), a.k_tokens = static_cast<uint32_t>(c.k_tokens);
    a.causal = c.causal ? 1 : 0, a.scale = c.scale(), a.q = on_q.data(), a.k = on_k.data();
    a.q_batch_stride = c.Stride(0, c.heads, c.q_tokens), a.k_batch_stride = c.Stride(0, c.kv_heads, c.k_tokens);
    a.q_head_stride = c.Stride(1, c.heads, c.q_tokens), a.k_head_stride = c.Stride(1, c.kv_heads, c.k_tokens);
    a.q_token_stride = c.Stride(2, c.heads, c.q_tokens), a.k_token_stride = c.Stride(2, c.kv_heads, c.k_tokens);
    EXPECT_EQ(gyro_cuda_absent(maxima.data(), static_cast<size_t>(c.heads), stream_), GYRO_OK);
    EXPECT_EQ(gyro_cuda_max_logits(&a, maxima.data(), stream_), GYRO_OK) << gyro_cuda_error();
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return maxima.Read();
  }

  template <typename T>
  void AllCases() {
    std::vector<AttentionCase> cases = AttentionCases();
    cases.push_back({2, 8, 2, 700, 700, 128, true, true});
    for (const AttentionCase& c : cases) {
      const auto q = Random<T>(c.q_size(), 1, 3), k = Random<T>(c.k_size(), 2, 3);
      const std::vector<double> wanted = ReferenceMaxima(c, q, k);
      const std::vector<float> maxima = Maxima(c, q, k);
      for (size_t h = 0; h < wanted.size(); ++h)
        ASSERT_NEAR(static_cast<double>(maxima[h]), wanted[h], 2e-5 * (1 + std::fabs(wanted[h])))
            << "head " << h << " of " << c.q_tokens << " x " << c.k_tokens << ", dim " << c.head_dim;
    }
  }

  template <typename T>
  void Rows() {
    constexpr size_t kColumns = 1000, kStride = 1024, kRows = 1024;
    const std::vector<T> before = Random<T>(kStride * kRows, 6);
    const std::vector<float> exact = Random<float>(kColumns * kRows, 7);
    std::vector<gyro_cuda_rows> rows;  // More than one launch takes: every second row a block of its own.
    for (uint64_t row = 0; row < kRows; row += 2) rows.push_back({row, 1, 0.5f + 0.0004f * static_cast<float>(row)});
    for (const bool with_master : {false, true}) {
      const OnDevice<T> values(before);
      const OnDevice<float> master_values(exact);
      const gyro_cuda_matrix matrix = {values.data(), kType<T>, kColumns, kStride};
      const gyro_cuda_matrix master = {master_values.data(), GYRO_CUDA_FP32, kColumns, kColumns};
      ASSERT_EQ(gyro_cuda_scale_rows(&matrix, with_master ? &master : nullptr, rows.data(), rows.size(), stream_),
                GYRO_OK) << gyro_cuda_error();
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      const std::vector<T> scaled = values.Read();
      for (size_t i = 0; i < scaled.size(); ++i) {
        const size_t row = i / kStride, column = i % kStride;
        float wanted = ToFloat(before[i]);
        if (row % 2 == 0 && column < kColumns) {
          const float source = with_master ? exact[row * kColumns + column] : wanted;
          wanted = ToFloat(FromFloat<T>(source * rows[row / 2].factor));
        }
        ASSERT_EQ(BitsOf(ToFloat(scaled[i])), BitsOf(wanted)) << row << " " << column;
      }
    }
  }

  // Seconds that `queue` takes on the device, the best of five of ten each.
  template <typename Queue>
  double Seconds(const Queue& queue) {
    cudaEvent_t begin, end;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    float best = INFINITY;
    for (int round = 0; round < 6; ++round) {
      cudaEventRecord(begin, stream_);
      for (int i = 0; i < 10; ++i) queue();
      cudaEventRecord(end, stream_);
      cudaEventSynchronize(end);
      float milliseconds = 0;
      cudaEventElapsedTime(&milliseconds, begin, end);
      if (round > 0) best = std::min(best, milliseconds);  // The first warms up.
    }
    cudaEventDestroy(begin), cudaEventDestroy(end);
    return static_cast<double>(best) / 1e4;
  }

  cudaStream_t stream_ = nullptr;
};

TEST_F(CudaDevice, MomentsAreThoseOfPlainCode) {
  for (const size_t count : {1u, 7u, 16u, 4099u, 3000017u})
    for (const size_t from : {0u, 1u, 3u}) {
      if (from >= count) continue;
      Moments<float>(count, from);
      Moments<Bf16>(count, from);
      Moments<Half>(count, from);
    }
}

TEST_F(CudaDevice, MaximaAreThoseOfAllScores) {
  AllCases<float>();
  AllCases<Bf16>();
  AllCases<Half>();
}

TEST_F(CudaDevice, RowsAreScaledToTheBit) {
  Rows<float>();
  Rows<Bf16>();
  Rows<Half>();
}

// The stream is held by a function of the host: every call comes back before anything of it could run.
TEST_F(CudaDevice, CallsQueueAndReturn) {
  const OnDevice<Bf16> values(Random<Bf16>(4096, 1));
  const OnDevice<gyro_cuda_moments> moments(1);
  const OnDevice<unsigned char> workspace(GYRO_CUDA_WORKSPACE_BYTES);
  std::atomic<bool> go = false;
  const auto hold = [](void* flag) {
    while (!static_cast<std::atomic<bool>*>(flag)->load()) {}
  };
  ASSERT_EQ(cudaLaunchHostFunc(stream_, hold, &go), cudaSuccess);
  const gyro_cuda_matrix matrix = {values.data(), GYRO_CUDA_BF16, 64, 64};
  const gyro_cuda_rows rows = {0, 64, 0.5f};
  EXPECT_EQ(gyro_cuda_zero(moments.data(), sizeof(gyro_cuda_moments), stream_), GYRO_OK);
  EXPECT_EQ(gyro_cuda_scale_rows(&matrix, nullptr, &rows, 1, stream_), GYRO_OK);
  EXPECT_EQ(gyro_cuda_add_moments(values.data(), 4096, GYRO_CUDA_BF16, moments.data(), workspace.data(), stream_),
            GYRO_OK);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  go = true;
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(moments.Read()[0].count, 4096u);
}

TEST_F(CudaDevice, ThroughputBesideACopy) {
  constexpr size_t kCount = size_t{1} << 28, kColumns = 8192;  // 512 MiB of bf16, beyond every cache.
  const OnDevice<Bf16> from(kCount), to(kCount);
  const OnDevice<gyro_cuda_moments> moments(1);
  const OnDevice<unsigned char> workspace(GYRO_CUDA_WORKSPACE_BYTES);
  const double bytes = 2.0 * kCount;
  const double copied = 2 * bytes / Seconds([&] {
    cudaMemcpyAsync(to.data(), from.data(), kCount * 2, cudaMemcpyDeviceToDevice, stream_);
  });
  const double read = bytes / Seconds([&] {
    gyro_cuda_add_moments(from.data(), kCount, GYRO_CUDA_BF16, moments.data(), workspace.data(), stream_);
  });
  const gyro_cuda_matrix matrix = {to.data(), GYRO_CUDA_BF16, kColumns, kColumns};
  std::vector<gyro_cuda_rows> heads;
  for (uint64_t row = 0; row < kCount / kColumns; row += 128) heads.push_back({row, 128, 0.99f});
  const double scaled = 2 * bytes / Seconds([&] {
    gyro_cuda_scale_rows(&matrix, nullptr, heads.data(), heads.size(), stream_);
  });
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  std::printf("copy %.0f GB/s; add_moments %.0f GB/s, %.2f of it; scale_rows %.0f GB/s, %.2f of it\n", copied / 1e9,
              read / 1e9, read / copied, scaled / 1e9, scaled / copied);
  gyro_cuda_attention a{};
  a.struct_size = sizeof(a), a.type = GYRO_CUDA_BF16;
  a.batch = 1, a.heads = 32, a.kv_heads = 8, a.q_tokens = a.k_tokens = 8192, a.head_dim = 128, a.causal = 1;
  a.scale = 0.088f, a.q = from.data(), a.k = to.data();
  a.q_token_stride = a.k_token_stride = 128, a.q_head_stride = a.k_head_stride = 128 * 8192;
  const OnDevice<float> maxima(32);
  const double seconds = Seconds([&] { gyro_cuda_max_logits(&a, maxima.data(), stream_); });
  std::printf("max_logits 8192 x 8192, 32 heads of 128, causal: %.2f ms, %.0f TFLOP/s\n", seconds * 1e3,
              32 * 8192.0 * 8192.0 * 128 / seconds / 1e12);
}

TEST(Cuda, RefusesWhatIsWrong) {
  float buffer[8] = {};
  const auto* aligned = reinterpret_cast<const void*>(uintptr_t{4096});
  gyro_cuda_attention good{};
  good.struct_size = sizeof(good), good.heads = 4, good.kv_heads = 2, good.head_dim = 64, good.scale = 0.125f;
  good.q = good.k = aligned;
  const auto error = [&](const auto& change) {
    gyro_cuda_attention a = good;
    change(&a);
    EXPECT_EQ(gyro_cuda_max_logits(&a, buffer, nullptr), GYRO_INVALID);
    return std::string(gyro_cuda_error());
  };
  EXPECT_EQ(gyro_cuda_max_logits(&good, buffer, nullptr), GYRO_OK);  // No tokens: nothing to do.
  EXPECT_STREQ(gyro_cuda_error(), "");
  EXPECT_EQ(error([](auto* a) { a->head_dim = 72; }), "head_dim is 72, wanted a multiple of 16 from 16 to 256");
  EXPECT_EQ(error([](auto* a) { a->kv_heads = 3; }), "kv_heads is 3, wanted a number that divides heads");
  EXPECT_EQ(error([](auto* a) { a->scale = NAN; }), "scale is nan, wanted a finite number above 0");
  EXPECT_EQ(error([](auto* a) { a->k_token_stride = 66; }),
            "a stride is 66, wanted a multiple of 16 bytes, so that rows are aligned");
  EXPECT_EQ(error([](auto* a) { a->q = static_cast<const char*>(a->q) + 4; }),
            "q or k is not aligned to 16 bytes");
  EXPECT_EQ(error([](auto* a) { a->type = static_cast<gyro_cuda_type>(3); }), "type is 3, wanted a gyro_cuda_type");
  gyro_cuda_matrix matrix = {buffer, GYRO_CUDA_FP32, 4, 4};
  gyro_cuda_rows rows = {0, 1, 1.5f};
  EXPECT_EQ(gyro_cuda_scale_rows(&matrix, nullptr, &rows, 1, nullptr), GYRO_INVALID);
  EXPECT_STREQ(gyro_cuda_error(), "a factor is 1.5, wanted above 0 and at most 1");
  matrix.row_stride = 3;
  EXPECT_EQ(gyro_cuda_scale_rows(&matrix, nullptr, &rows, 0, nullptr), GYRO_INVALID);
  EXPECT_STREQ(gyro_cuda_error(), "row_stride is 3, wanted at least columns");
  EXPECT_EQ(gyro_cuda_add_moments(nullptr, 3, GYRO_CUDA_FP32, nullptr, nullptr, nullptr), GYRO_INVALID);
}

// Without a device CUDA's own words come back, and nothing else happens.
TEST(Cuda, SaysWhyNothingWasLaunched) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) GTEST_SKIP() << "there is a device";
  alignas(16) static unsigned char workspace[GYRO_CUDA_WORKSPACE_BYTES];
  gyro_cuda_moments moments{};
  const float values[4] = {};
  EXPECT_EQ(gyro_cuda_add_moments(values, 4, GYRO_CUDA_FP32, &moments, workspace, nullptr), GYRO_UNAVAILABLE);
  EXPECT_EQ(std::string(gyro_cuda_error()).rfind("add_moments was not launched: ", 0), 0u) << gyro_cuda_error();
}

}  // namespace
}  // namespace gyrostat::cuda
