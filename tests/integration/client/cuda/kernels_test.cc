// The kernels, run on the CPU by the double of CUDA's execution, against plain code: indexing, masks, ragged ends,
// barriers, reductions. What is left for a device is the compiler and speed (cuda_test.cc).
#include "support/cuda_on_cpu.h"

// After the double, whose macros it is written in.
#include "client/cuda/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "support/cuda_reference.h"

namespace gyrostat::cuda {
namespace {

using testing::Grid;

template <typename T>
void RunAddMoments(const std::vector<T>& values, size_t from, unsigned blocks, int order, Moments* moments,
                   Workspace* workspace) {
  const T* data = values.data() + from;
  const size_t past = reinterpret_cast<uintptr_t>(data) % 16;
  const size_t head = std::min(values.size() - from, past == 0 ? 0 : (16 - past) / sizeof(T));
  Grid::Run({blocks}, kThreads, 0, order, [&] {
    AddMoments<T>(data, values.size() - from, static_cast<int>(head), moments, workspace);
  });
}

template <typename T>
class Kernels : public ::testing::Test {};
using Types = ::testing::Types<float, Bf16, Half>;
TYPED_TEST_SUITE(Kernels, Types);

TYPED_TEST(Kernels, MomentsAreThoseOfPlainCodeForEveryLengthAndAlignment) {
  auto workspace = std::make_unique<Workspace>();
  for (const size_t count : {1u, 2u, 7u, 15u, 16u, 17u, 255u, 4099u, 20011u})
    for (const size_t from : {0u, 1u, 3u})
      for (const unsigned blocks : {1u, 3u}) {
        if (from >= count) continue;
        std::vector<TypeParam> values = Random<TypeParam>(count, static_cast<uint32_t>(count));
        values[count - 1] = FromFloat<TypeParam>(-9);
        if (count > 100) values[50] = FromFloat<TypeParam>(NAN), values[60] = FromFloat<TypeParam>(-INFINITY);
        Moments moments = {};
        RunAddMoments(values, from, blocks, 1, &moments, workspace.get());
        ReferenceMoments wanted;
        wanted.Add(values, from);
        const std::string where = std::to_string(count) + " from " + std::to_string(from);
        ASSERT_EQ(moments.count, wanted.count) << where;
        ASSERT_EQ(moments.nonfinite, wanted.nonfinite) << where;
        ASSERT_EQ(moments.abs_max, wanted.abs_max) << where;
        ASSERT_NEAR(moments.sum_squares / static_cast<double>(wanted.sum_squares), 1, 1e-6) << where;
        ASSERT_EQ(workspace->finished, 0u);
      }
}

TYPED_TEST(Kernels, MomentsAddUpAndHaveTheSameBitsInAnyOrderOfThreads) {
  auto workspace = std::make_unique<Workspace>();
  const std::vector<TypeParam> values = Random<TypeParam>(9001, 5, 30);
  Moments forward = {}, backward = {};
  for (int i = 0; i < 2; ++i) RunAddMoments(values, 0, 3, 1, &forward, workspace.get());
  for (int i = 0; i < 2; ++i) RunAddMoments(values, 0, 3, -1, &backward, workspace.get());
  EXPECT_EQ(std::bit_cast<uint64_t>(forward.sum_squares), std::bit_cast<uint64_t>(backward.sum_squares));
  EXPECT_EQ(forward.count, 18002u);
}

template <typename T>
std::vector<float> RunMaxLogits(const AttentionCase& c, const std::vector<T>& q, const std::vector<T>& k, int order) {
  std::vector<float> maxima(static_cast<size_t>(c.heads), -FLT_MAX);
  Attention a;
  a.q = q.data(), a.k = k.data();
  a.q_batch_stride = c.Stride(0, c.heads, c.q_tokens), a.k_batch_stride = c.Stride(0, c.kv_heads, c.k_tokens);
  a.q_head_stride = c.Stride(1, c.heads, c.q_tokens), a.k_head_stride = c.Stride(1, c.kv_heads, c.k_tokens);
  a.q_token_stride = c.Stride(2, c.heads, c.q_tokens), a.k_token_stride = c.Stride(2, c.kv_heads, c.k_tokens);
  a.heads = c.heads, a.kv_heads = c.kv_heads, a.head_dim = c.head_dim, a.scale = c.scale();
  a.sight = {c.q_tokens, c.k_tokens, c.causal ? 1 : 0};
  const dim3 grid{static_cast<unsigned>((c.q_tokens + kTile - 1) / kTile), static_cast<unsigned>(c.heads),
                  static_cast<unsigned>(c.batch)};
  if constexpr (sizeof(T) == 4)
    Grid::Run(grid, kThreads, 0, order, [&] { MaxLogits<T>(a, maxima.data()); });
  else
    Grid::Run(grid, kMatrixThreads, MatrixBytes<T>(c.head_dim), order, [&] { MaxLogitsMatrix<T>(a, maxima.data()); });
  return maxima;
}

TYPED_TEST(Kernels, MaximaAreThoseOfAllScores) {
  for (const AttentionCase& c : AttentionCases()) {
    const auto q = Random<TypeParam>(c.q_size(), 1, 3), k = Random<TypeParam>(c.k_size(), 2, 3);
    const std::vector<double> wanted = ReferenceMaxima(c, q, k);
    for (const int order : {1, -1}) {
      const std::vector<float> maxima = RunMaxLogits(c, q, k, order);
      for (size_t h = 0; h < wanted.size(); ++h)
        ASSERT_NEAR(static_cast<double>(maxima[h]), wanted[h], 1e-5 * (1 + std::fabs(wanted[h])))
            << "head " << h << " of " << c.q_tokens << " x " << c.k_tokens << ", dim " << c.head_dim;
    }
  }
}

// A score that the mask hides, one past the end, and a NaN: each far above all others.
TYPED_TEST(Kernels, MaximaSeeWhatTheMaskShowsAndNothingElse) {
  const AttentionCase c = {1, 2, 2, 70, 75, 32, true};
  auto q = Random<TypeParam>(c.q_size(), 3), k = Random<TypeParam>(c.k_size(), 4);
  const size_t d = 32, head = 70 * d;
  for (size_t i = 0; i < d; ++i) q[10 * d + i] = FromFloat<TypeParam>(50), k[16 * d + i] = FromFloat<TypeParam>(50);
  std::vector<float> maxima = RunMaxLogits(c, q, k, 1);
  const std::vector<double> hidden = ReferenceMaxima(c, q, k);  // Query 10 sees keys up to 15.
  EXPECT_LT(hidden[0], 1e4);
  EXPECT_NEAR(static_cast<double>(maxima[0]), hidden[0], 1e-4 * hidden[0]);
  for (size_t i = 0; i < d; ++i) k[15 * d + i] = FromFloat<TypeParam>(50);
  maxima = RunMaxLogits(c, q, k, 1);
  EXPECT_NEAR(maxima[0], 2500 * 32 / std::sqrt(32.0f), 1);
  q[head + 69 * d] = FromFloat<TypeParam>(NAN);
  maxima = RunMaxLogits(c, q, k, 1);
  EXPECT_TRUE(std::isnan(maxima[1]));
  EXPECT_FALSE(std::isnan(maxima[0]));
}

TYPED_TEST(Kernels, MaximaOnlyRise) {
  float maximum = 5;
  RaiseMaximum(&maximum, 4);
  EXPECT_EQ(maximum, 5);
  RaiseMaximum(&maximum, INFINITY);
  EXPECT_EQ(maximum, INFINITY);
  RaiseMaximum(&maximum, NAN);
  RaiseMaximum(&maximum, 7);
  EXPECT_TRUE(std::isnan(maximum));
}

TYPED_TEST(Kernels, RowsAreScaledToTheBitAndOthersAreLeftAlone) {
  constexpr size_t kColumns = 300, kStride = 320, kRows = 24;
  const std::vector<TypeParam> before = Random<TypeParam>(kStride * kRows, 6);
  const std::vector<float> exact = Random<float>(kColumns * kRows, 7);
  RowBlocks blocks = {};
  blocks.blocks[0] = {2, 8, 0.7071f};
  blocks.blocks[1] = {16, 8, 0.99f};
  for (const bool with_master : {false, true}) {
    std::vector<TypeParam> matrix = before;
    std::vector<float> master = exact;
    Grid::Run({2, 2, 3}, kThreads, 0, 1, [&] {
      ScaleRows<TypeParam>(matrix.data(), kStride, with_master ? master.data() : nullptr, kColumns, kColumns, blocks);
    });
    for (size_t row = 0; row < kRows; ++row)
      for (size_t column = 0; column < kStride; ++column) {
        const float factor = row >= 2 && row < 10 ? 0.7071f : row >= 16 ? 0.99f : 1;
        const size_t at = row * kStride + column, at_master = row * kColumns + column;
        float wanted = ToFloat(before[at]);
        if (column < kColumns && factor < 1) {
          wanted = ToFloat(FromFloat<TypeParam>((with_master ? exact[at_master] : wanted) * factor));
        }
        ASSERT_EQ(BitsOf(ToFloat(matrix[at])), BitsOf(wanted)) << row << " " << column;
        if (column >= kColumns || !with_master) continue;
        ASSERT_EQ(master[at_master], factor < 1 ? exact[at_master] * factor : exact[at_master]);
      }
  }
}

}  // namespace
}  // namespace gyrostat::cuda
