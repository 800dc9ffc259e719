// The arithmetic inside the kernels, for the device and for the host: what a test without a device can hold against
// formulas. C++17, for older nvcc.
#pragma once

#include <cfloat>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#define GYROSTAT_HD __host__ __device__ inline
#else
#define GYROSTAT_HD inline
#endif

namespace gyrostat::cuda {

// The working types, as bits.
struct Bf16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};

GYROSTAT_HD uint32_t BitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
GYROSTAT_HD float FloatOf(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

GYROSTAT_HD float ToFloat(float value) { return value; }
GYROSTAT_HD float ToFloat(Bf16 value) { return FloatOf(static_cast<uint32_t>(value.bits) << 16); }
GYROSTAT_HD float ToFloat(Half value) {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(value.bits));
#else
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t exponent = (value.bits >> 10) & 31u, fraction = value.bits & 1023u;
  if (exponent == 31) return FloatOf(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return FloatOf(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float small = static_cast<float>(fraction) * 0x1p-24f;  // Exact: subnormal or zero.
  return FloatOf(sign | BitsOf(small));
#endif
}

// Rounds to nearest, ties to even. NaN stays NaN.
template <typename T>
GYROSTAT_HD T FromFloat(float value);
template <>
GYROSTAT_HD float FromFloat<float>(float value) {
  return value;
}
template <>
GYROSTAT_HD Bf16 FromFloat<Bf16>(float value) {
  const uint32_t bits = BitsOf(value);
  if (value != value) return {static_cast<uint16_t>((bits >> 16) | 64u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
template <>
GYROSTAT_HD Half FromFloat<Half>(float value) {
#if defined(__CUDA_ARCH__)
  return {__half_as_ushort(__float2half_rn(value))};
#else
  const uint32_t bits = BitsOf(value), magnitude = bits & 0x7fffffffu;
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // 65520 and above.
  if (magnitude < 0x38800000u) {  // Below the least normal: adding 0.5 rounds to a multiple of 2^-24.
    const float aligned = FloatOf(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (BitsOf(aligned) - 0x3f000000u))};
  }
  return {static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13))};
#endif
}

// As gyro_cuda_moments.
struct Moments {
  double sum_squares;
  uint64_t count;
  uint64_t nonfinite;
  float abs_max;
  uint32_t reserved;

  GYROSTAT_HD void Merge(const Moments& other) {
    sum_squares += other.sum_squares;
    count += other.count;
    nonfinite += other.nonfinite;
    abs_max = abs_max > other.abs_max ? abs_max : other.abs_max;
  }

  // At most 8 values. Their squares are summed in float where that loses nothing that counts, in double where they
  // could overflow or vanish: doubles are slow on many devices.
  template <int kCount>
  GYROSTAT_HD void Add(const float (&values)[kCount]) {
    float sum = 0, top = 0;
    int bad = 0;
    for (int i = 0; i < kCount; ++i) {
      float a = values[i] < 0 ? -values[i] : values[i];
      const bool finite = a <= FLT_MAX;
      bad += finite ? 0 : 1;
      a = finite ? a : 0;
      top = top > a ? top : a;
      sum += a * a;
    }
    double squares = sum;
    if (top > 1e18f || (top > 0 && top < 1e-12f)) {
      squares = 0;
      for (int i = 0; i < kCount; ++i) {
        const double a = values[i];
        if (a <= FLT_MAX && a >= -FLT_MAX) squares += a * a;
      }
    }
    sum_squares += squares;
    count += static_cast<uint64_t>(kCount - bad);
    nonfinite += static_cast<uint64_t>(bad);
    abs_max = abs_max > top ? abs_max : top;
  }
};

// The larger; a NaN wins and stays.
GYROSTAT_HD float MaxOrNan(float a, float b) {
  if (a != a) return a;
  if (b != b) return b;
  return a > b ? a : b;
}

// Tokens of one head: which keys a query sees.
struct Sight {
  int q_tokens, k_tokens, causal;

  // Keys [0, Keys(i)) are seen by query i.
  GYROSTAT_HD int Keys(int query) const {
    if (query >= q_tokens) return 0;
    if (!causal) return k_tokens;
    const int keys = query + k_tokens - q_tokens + 1;
    return keys < 0 ? 0 : keys;
  }
  // Whether every query of [q, q + rows) sees every key of [k, k + columns).
  GYROSTAT_HD bool Whole(int q, int rows, int k, int columns) const {
    return q + rows <= q_tokens && k + columns <= Keys(q);
  }
};

// In fp32, rounded once.
template <typename T>
GYROSTAT_HD T Scaled(T value, float factor) {
  return FromFloat<T>(ToFloat(value) * factor);
}

}  // namespace gyrostat::cuda
