// The C ABI of libgyrostat_cuda.so: judges arguments, so that launch.h need not.
#include "gyrostat/cuda.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "client/cuda/launch.h"

namespace {

// A sentence without allocation.
thread_local char last_error[GYRO_REASON_BYTES];

gyro_status Say(gyro_status status, const char* what, const char* more = "") {
  std::string_view parts[] = {what, more};
  size_t at = 0;
  for (const std::string_view part : parts) {
    const size_t size = std::min(part.size(), sizeof(last_error) - 1 - at);
    std::memcpy(last_error + at, part.data(), size);
    at += size;
  }
  last_error[at] = '\0';
  return status;
}

gyro_status Invalid(const char* name, double seen, const char* wanted) {
  char text[GYRO_REASON_BYTES];
  std::snprintf(text, sizeof(text), "%s is %.10g, wanted %s", name, seen, wanted);
  return Say(GYRO_INVALID, text);
}

gyro_status Launched(const char* kernel, const char* error) {
  if (error == nullptr) return Say(GYRO_OK, "");
  char text[GYRO_REASON_BYTES];
  std::snprintf(text, sizeof(text), "%s was not launched: ", kernel);
  return Say(GYRO_UNAVAILABLE, text, error);
}

bool IsType(gyro_cuda_type type) {
  return type == GYRO_CUDA_FP32 || type == GYRO_CUDA_BF16 || type == GYRO_CUDA_FP16;
}
size_t SizeOf(gyro_cuda_type type) { return type == GYRO_CUDA_FP32 ? 4 : 2; }
bool Aligned(const void* pointer, size_t to) { return reinterpret_cast<uintptr_t>(pointer) % to == 0; }

gyro_status JudgeShape(const gyro_cuda_attention& a) {
  if (!IsType(a.type)) return Invalid("type", a.type, "a gyro_cuda_type");
  if (a.batch > 65535) return Invalid("batch", a.batch, "at most 65535");
  if (a.heads < 1 || a.heads > 65535) return Invalid("heads", a.heads, "1 to 65535");
  if (a.kv_heads < 1 || a.heads % a.kv_heads != 0)
    return Invalid("kv_heads", a.kv_heads, "a number that divides heads");
  if (a.head_dim < 16 || a.head_dim > 256 || a.head_dim % 16 != 0)
    return Invalid("head_dim", a.head_dim, "a multiple of 16 from 16 to 256");
  if (a.q_tokens > 1u << 30) return Invalid("q_tokens", a.q_tokens, "at most 2^30");
  if (a.k_tokens > 1u << 30) return Invalid("k_tokens", a.k_tokens, "at most 2^30");
  if (a.causal != 0 && a.causal != 1) return Invalid("causal", a.causal, "0 or 1");
  if (!(a.scale > 0) || !std::isfinite(a.scale))
    return Invalid("scale", static_cast<double>(a.scale), "a finite number above 0");
  return GYRO_OK;
}

gyro_status JudgeRows(const gyro_cuda_attention& a) {
  if (a.q == nullptr || a.k == nullptr) return Say(GYRO_INVALID, "q or k is NULL");
  if (!Aligned(a.q, 16) || !Aligned(a.k, 16)) return Say(GYRO_INVALID, "q or k is not aligned to 16 bytes");
  const uint64_t unit = 16 / SizeOf(a.type);
  const uint64_t strides[] = {a.q_batch_stride, a.q_head_stride, a.q_token_stride,
                              a.k_batch_stride, a.k_head_stride, a.k_token_stride};
  for (const uint64_t stride : strides)
    if (stride % unit != 0)
      return Invalid("a stride", static_cast<double>(stride), "a multiple of 16 bytes, so that rows are aligned");
  return GYRO_OK;
}

gyro_status JudgeMatrix(const gyro_cuda_matrix& m) {
  if (!IsType(m.type)) return Invalid("type", m.type, "a gyro_cuda_type");
  if (m.values == nullptr) return Say(GYRO_INVALID, "a matrix's values are NULL");
  if (!Aligned(m.values, SizeOf(m.type))) return Say(GYRO_INVALID, "a matrix is not aligned to its type");
  if (m.columns < 1 || m.columns > uint64_t{1} << 38)
    return Invalid("columns", static_cast<double>(m.columns), "1 to 2^38");
  if (m.row_stride < m.columns)
    return Invalid("row_stride", static_cast<double>(m.row_stride), "at least columns");
  return GYRO_OK;
}

}  // namespace

extern "C" {

gyro_status gyro_cuda_zero(void* to, size_t bytes, void* stream) {
  if (to == nullptr && bytes > 0) return Say(GYRO_INVALID, "to is NULL");
  return Launched("zeroing", bytes == 0 ? nullptr : gyrostat::cuda::Zero(to, bytes, stream));
}

gyro_status gyro_cuda_absent(float* to, size_t count, void* stream) {
  if (to == nullptr && count > 0) return Say(GYRO_INVALID, "to is NULL");
  return Launched("filling", count == 0 ? nullptr : gyrostat::cuda::Absent(to, count, stream));
}

gyro_status gyro_cuda_add_moments(const void* values, size_t count, gyro_cuda_type type, gyro_cuda_moments* moments,
                                  void* workspace, void* stream) {
  if (!IsType(type)) return Invalid("type", type, "a gyro_cuda_type");
  if ((values == nullptr && count > 0) || moments == nullptr || workspace == nullptr)
    return Say(GYRO_INVALID, "values, moments or workspace is NULL");
  if (!Aligned(values, SizeOf(type))) return Say(GYRO_INVALID, "values are not aligned to their type");
  if (!Aligned(workspace, 16)) return Say(GYRO_INVALID, "the workspace is not aligned to 16 bytes");
  if (count == 0) return Say(GYRO_OK, "");
  return Launched("add_moments", gyrostat::cuda::AddMoments(values, count, type, moments, workspace, stream));
}

gyro_status gyro_cuda_max_logits(const gyro_cuda_attention* attention, float* maxima, void* stream) {
  if (attention == nullptr || maxima == nullptr) return Say(GYRO_INVALID, "attention or maxima is NULL");
  gyro_cuda_attention a{};
  std::memcpy(&a, attention, std::min<size_t>(attention->struct_size, sizeof(a)));
  gyro_status status = JudgeShape(a);
  if (status == GYRO_OK) status = JudgeRows(a);
  if (status != GYRO_OK) return status;
  if (a.batch == 0 || a.q_tokens == 0 || a.k_tokens == 0) return Say(GYRO_OK, "");
  return Launched("max_logits", gyrostat::cuda::MaxLogits(a, maxima, stream));
}

gyro_status gyro_cuda_scale_rows(const gyro_cuda_matrix* matrix, const gyro_cuda_matrix* master,
                                 const gyro_cuda_rows* rows, size_t count, void* stream) {
  if (matrix == nullptr || (rows == nullptr && count > 0)) return Say(GYRO_INVALID, "matrix or rows is NULL");
  gyro_status status = JudgeMatrix(*matrix);
  if (status == GYRO_OK && master != nullptr) status = JudgeMatrix(*master);
  if (status != GYRO_OK) return status;
  if (master != nullptr && master->type != GYRO_CUDA_FP32) return Say(GYRO_INVALID, "a master is fp32");
  if (master != nullptr && master->columns != matrix->columns)
    return Invalid("the master's columns", static_cast<double>(master->columns), "those of the matrix");
  for (size_t i = 0; i < count; ++i)
    if (!(rows[i].factor > 0 && rows[i].factor <= 1))
      return Invalid("a factor", static_cast<double>(rows[i].factor), "above 0 and at most 1");
  for (size_t i = 0; i < count && status == GYRO_OK; i += gyrostat::cuda::kRowsMax) {
    const size_t some = std::min(count - i, gyrostat::cuda::kRowsMax);
    status = Launched("scale_rows", gyrostat::cuda::ScaleRows(*matrix, master, rows + i, some, stream));
  }
  return status == GYRO_OK ? Say(GYRO_OK, "") : status;
}

const char* gyro_cuda_error(void) { return last_error; }

}  // extern "C"
