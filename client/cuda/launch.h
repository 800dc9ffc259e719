// Queues the kernels of kernels.h. Arguments have been checked. Each answers null, or CUDA's words for what went wrong.
// Thread-safe; nothing is allocated, nothing waits.
#pragma once

#include <cstddef>

#include "gyrostat/cuda.h"

namespace gyrostat::cuda {

const char* Zero(void* to, size_t bytes, void* stream);
const char* Absent(float* to, size_t count, void* stream);
const char* AddMoments(const void* values, size_t count, gyro_cuda_type type, gyro_cuda_moments* moments,
                       void* workspace, void* stream);
const char* MaxLogits(const gyro_cuda_attention& attention, float* maxima, void* stream);
// At most kRowsMax blocks a call.
inline constexpr size_t kRowsMax = 128;
const char* ScaleRows(const gyro_cuda_matrix& matrix, const gyro_cuda_matrix* master, const gyro_cuda_rows* rows,
                      size_t count, void* stream);

}  // namespace gyrostat::cuda
