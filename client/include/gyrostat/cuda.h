/* Statistics and rescaling on the GPU: libgyrostat_cuda.so. Every function queues kernels on the given stream (a
 * cudaStream_t; NULL is CUDA's default stream) and returns: nothing is allocated, nothing waits for the device.
 * Pointers are device pointers unless said otherwise, on the current device. Results stay on the device: copy them when
 * a step is over, in one asynchronous copy.
 *
 * Thread-safe. GYRO_INVALID: an argument is wrong; GYRO_UNAVAILABLE: a kernel could not be launched; gyro_cuda_error
 * says which, what was seen and what wanted. Nothing is queued then (of a call that launches several kernels: what came
 * before the one that failed was). Devices of compute capability 8.0 and newer.
 */
#ifndef GYROSTAT_CUDA_H_
#define GYROSTAT_CUDA_H_

#include "gyrostat/gyrostat.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gyro_cuda_type { GYRO_CUDA_FP32 = 0, GYRO_CUDA_BF16 = 1, GYRO_CUDA_FP16 = 2 } gyro_cuda_type;

/* What is known of all values that were added. Begins as zeros. Non-finite values are counted and enter nothing
 * else. */
typedef struct gyro_cuda_moments {
  double sum_squares;
  uint64_t count;         /* Finite values. */
  uint64_t nonfinite;
  float abs_max;
  uint32_t reserved;
} gyro_cuda_moments;

/* Fills with zeros (moments, workspaces), or with GYRO_ABSENT (maxima). */
GYRO_API gyro_status gyro_cuda_zero(void *to, size_t bytes, void *stream);
GYRO_API gyro_status gyro_cuda_absent(float *to, size_t count, void *stream);

/* Adds `count` values to `*moments` in one pass over them: call it for each tensor of a layer. Sums of squares are kept
 * in double, in an order that depends on `count` and alignment only: the same values give the same bits. `workspace`
 * has GYRO_CUDA_WORKSPACE_BYTES, aligned to 16, was zeroed once, and is used on one stream at a time. */
#define GYRO_CUDA_WORKSPACE_BYTES 32784
GYRO_API gyro_status gyro_cuda_add_moments(const void *values, size_t count, gyro_cuda_type type,
                                           gyro_cuda_moments *moments, void *workspace, void *stream);

/* Queries [batch][heads][q_tokens][head_dim] and keys [batch][kv_heads][k_tokens][head_dim] as they enter the softmax's
 * product (after rotary embedding and normalisation), in any layout whose head_dim is contiguous: strides are in
 * elements. Rows are aligned to 16 bytes. Query head h uses key head h * kv_heads / heads. */
typedef struct gyro_cuda_attention {
  uint32_t struct_size;
  gyro_cuda_type type;
  uint32_t batch, heads, kv_heads, q_tokens, k_tokens;
  uint32_t head_dim;      /* A multiple of 16, 16 to 256. */
  int32_t causal;         /* 1: query i sees keys up to i + k_tokens - q_tokens; 0: all. */
  float scale;            /* Finite, above 0; usually head_dim to the power of -1/2. */
  const void *q;
  const void *k;
  uint64_t q_batch_stride, q_head_stride, q_token_stride;
  uint64_t k_batch_stride, k_head_stride, k_token_stride;
} gyro_cuda_attention;

/* Raises maxima[h] (of [heads]) to the largest scale * q.k of head h over batch and tokens, without writing a score
 * anywhere. fp32 sums of exact products. A NaN or +Inf among the scores shows as NaN or +Inf; NaN stays. A head that
 * sees no key keeps what it has. */
GYRO_API gyro_status gyro_cuda_max_logits(const gyro_cuda_attention *attention, float *maxima, void *stream);

/* Rows [row_begin, row_begin + rows) of a matrix, times `factor`. A host struct, copied by the call. */
typedef struct gyro_cuda_rows {
  uint64_t row_begin;
  uint32_t rows;
  float factor;           /* (0, 1]. */
} gyro_cuda_rows;

/* A matrix of `columns` values a row, `row_stride` elements from row to row. A bias has one column, stride 1. */
typedef struct gyro_cuda_matrix {
  void *values;
  gyro_cuda_type type;
  uint64_t columns, row_stride;
} gyro_cuda_matrix;

/* Multiplies blocks of rows in fp32 and rounds once to the matrix's type, to nearest even. Blocks must not overlap.
 * With a master (fp32, of as many columns; NULL: none) that is scaled, and `matrix` becomes its rounding: what the next
 * optimizer step would have made of it. Bit for bit what a CPU does. */
GYRO_API gyro_status gyro_cuda_scale_rows(const gyro_cuda_matrix *matrix, const gyro_cuda_matrix *master,
                                          const gyro_cuda_rows *rows, size_t count, void *stream);

/* What went wrong last on this thread, in words, or "". Lives until the thread's next call. */
GYRO_API const char *gyro_cuda_error(void);

#ifdef __cplusplus
}
#endif

#endif  /* GYROSTAT_CUDA_H_ */
