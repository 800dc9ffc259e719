// What the kernels must bring, written down plainly on the CPU, and data to give them. For the run on the CPU and for
// the one on a device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "client/cuda/arithmetic.h"

namespace gyrostat::cuda {

struct ReferenceMoments {
  long double sum_squares = 0;
  uint64_t count = 0, nonfinite = 0;
  float abs_max = 0;

  template <typename T>
  void Add(const std::vector<T>& values, size_t from = 0) {
    for (size_t i = from; i < values.size(); ++i) {
      const float x = ToFloat(values[i]);
      if (!std::isfinite(x)) {
        ++nonfinite;
        continue;
      }
      ++count;
      sum_squares += static_cast<long double>(x) * static_cast<long double>(x);
      abs_max = std::max(abs_max, std::fabs(x));
    }
  }
};

template <typename T>
std::vector<T> Random(size_t count, uint32_t seed, float size = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, size);
  std::vector<T> values(count);
  for (T& value : values) value = FromFloat<T>(normal(random));
  return values;
}

// Shape of a case; tokens outermost after batch, as [batch][token][head][dim], or heads, as [batch][head][token][dim].
struct AttentionCase {
  int batch, heads, kv_heads, q_tokens, k_tokens, head_dim;
  bool causal;
  bool tokens_first = false;

  size_t q_size() const { return static_cast<size_t>(batch) * heads * q_tokens * head_dim; }
  size_t k_size() const { return static_cast<size_t>(batch) * kv_heads * k_tokens * head_dim; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(head_dim)); }
  size_t Stride(int what, int of, int tokens) const {  // 0 batch, 1 head, 2 token.
    const size_t d = static_cast<size_t>(head_dim);
    if (what == 0) return d * of * tokens;
    return (what == 1) == tokens_first ? d : d * (tokens_first ? of : tokens);
  }
};

// The largest scaled score of each head; -FLT_MAX where there is none; NaN where one is.
template <typename T>
std::vector<double> ReferenceMaxima(const AttentionCase& c, const std::vector<T>& q, const std::vector<T>& k) {
  std::vector<double> maxima(static_cast<size_t>(c.heads), -static_cast<double>(FLT_MAX));
  for (int b = 0; b < c.batch; ++b)
    for (int h = 0; h < c.heads; ++h)
      for (int i = 0; i < c.q_tokens; ++i)
        for (int j = 0; j < c.k_tokens; ++j) {
          if (c.causal && j > i + c.k_tokens - c.q_tokens) continue;
          const size_t at_q = b * c.Stride(0, c.heads, c.q_tokens) + h * c.Stride(1, c.heads, c.q_tokens) +
                              i * c.Stride(2, c.heads, c.q_tokens);
          const int kv = h * c.kv_heads / c.heads;
          const size_t at_k = b * c.Stride(0, c.kv_heads, c.k_tokens) + kv * c.Stride(1, c.kv_heads, c.k_tokens) +
                              j * c.Stride(2, c.kv_heads, c.k_tokens);
          double score = 0;
          for (int d = 0; d < c.head_dim; ++d)
            score += static_cast<double>(ToFloat(q[at_q + d])) * static_cast<double>(ToFloat(k[at_k + d]));
          score *= static_cast<double>(c.scale());
          double& top = maxima[static_cast<size_t>(h)];
          if (std::isnan(score)) top = score;
          else if (!std::isnan(top)) top = std::max(top, score);
        }
  return maxima;
}

inline std::vector<AttentionCase> AttentionCases() {
  return {
      {1, 1, 1, 64, 64, 64, true},          // One whole tile on the diagonal.
      {2, 4, 2, 70, 70, 32, true},          // Ragged ends, grouped keys.
      {1, 4, 1, 130, 190, 80, true},        // More keys than queries; one key head for all.
      {1, 2, 2, 100, 40, 128, true},        // Queries that see no key.
      {2, 3, 3, 33, 129, 48, false},        // No mask.
      {1, 6, 2, 65, 65, 96, true, true},    // Heads inside tokens.
      {1, 2, 1, 96, 96, 256, false, true},  // The largest head.
      {1, 2, 1, 1, 200, 192, true},         // One new token.
  };
}

}  // namespace gyrostat::cuda
