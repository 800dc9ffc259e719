/* Ranks that agree through NCCL: a gyro_collective for jobs on GPUs, launched on the training stream. Link
 * libgyrostat_nccl.so; it loads libnccl.so.2 and libcudart.so when it is used (those of the job, where they are loaded
 * already), so it builds and links where neither is.
 *
 *   gyro_nccl_id id;                                 // the leader makes it, the job hands it to all ranks
 *   if (rank == 0) gyro_nccl_unique_id(NULL, &id, why, sizeof(why));
 *   options.id = &id; options.stream = stream;
 *   gyro_nccl_open(&options, &collective, &nccl);    // all ranks, the job's device being current
 *   collective.replica = data_parallel_rank;         // and shards; then gyro_open with the collective, the loop
 *   gyro_nccl_close(nccl, 1000);                     // after gyro_close
 *
 * A round is: copy to the device, MAX and SUM as one group launch, copy back, record an event; all on the given
 * stream, at the place in program order where the client begins it (the last gyro_poll of a boundary). Waiting asks
 * for that event and for NCCL's asynchronous error, and for nothing else: no device and no stream is synchronised. It
 * has no time-out. gyro_progress asks for that event alone, also while the training thread captures a stream into a
 * graph. When NCCL reports an error (a peer's connection broke) the library's own communicator is aborted, so that the
 * stream goes on, and the round has failed. Ranks of one machine that talk through memory may not notice a peer that
 * died: that is for the job's own watchdog, as with its other collectives.
 *
 * Not thread-safe: one thread, the training thread, calls everything. Nothing here throws, prints or aborts.
 */
#ifndef GYROSTAT_NCCL_H_
#define GYROSTAT_NCCL_H_

#include "gyrostat/gyrostat.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gyro_nccl gyro_nccl;

/* The same bytes as ncclUniqueId. */
typedef struct gyro_nccl_id {
  uint8_t bytes[128];
} gyro_nccl_id;

/* Where the libraries are looked for instead of libnccl.so.2 and libcudart.so.13, .12 or .11.0. Any may be NULL. */
typedef struct gyro_nccl_libraries {
  uint32_t struct_size;
  const char *nccl;
  const char *cudart;
} gyro_nccl_libraries;

typedef struct gyro_nccl_options {
  uint32_t struct_size;
  uint32_t rank;
  uint32_t size;                /* Ranks in all, at least 1. */
  int32_t sums;                 /* 1: the client sums as well (its signals of all ranks); 0: MAX only. */
  const gyro_nccl_id *id;       /* Of a communicator of the library's own. One of id and communicator. */
  void *communicator;           /* An ncclComm_t that nothing else uses; stays the job's, and is never aborted here. */
  void *stream;                 /* The training stream, a cudaStream_t. NULL is CUDA's default stream. */
  uint64_t lanes_max;           /* Floats that a round may have. 0: 262144. At most 2^26; pinned once on the host and
                                   once on the device, for MAX and for SUM. */
  const gyro_nccl_libraries *libraries; /* May be NULL. */
} gyro_nccl_options;

/* Fills `options` with defaults. */
GYRO_API gyro_status gyro_nccl_options_init(gyro_nccl_options *options);

/* Makes the id of a communicator, on one rank. `libraries` may be NULL. GYRO_UNAVAILABLE: NCCL cannot be loaded or
 * refused; `why` (of `why_size` bytes; may be NULL) says it in words. */
GYRO_API gyro_status gyro_nccl_unique_id(const gyro_nccl_libraries *libraries, gyro_nccl_id *id, char *why,
                                         size_t why_size);

/* Allocates buffers and joins the communicator on the current device: blocks until all ranks have called it, as
 * ncclCommInitRank does. `*collective` (its struct_size must be set) gets context and functions, other fields stay.
 * `*nccl` is always set unless the status is GYRO_NO_MEMORY; where opening failed every call of the collective fails.
 * GYRO_INVALID: an option is wrong; GYRO_UNAVAILABLE: a library, the device or NCCL; gyro_nccl_error says why. */
GYRO_API gyro_status gyro_nccl_open(const gyro_nccl_options *options, gyro_collective *collective, gyro_nccl **nccl);

/* What went wrong last, in words, or "". Lives until the next call that takes `nccl` or its collective. */
GYRO_API const char *gyro_nccl_error(const gyro_nccl *nccl);

/* Waits at most `wait_ms` for a round that is still under way, then gives back communicator and buffers (aborting the
 * one and leaking the others if it is still under way). After gyro_close. NULL is fine. */
GYRO_API gyro_status gyro_nccl_close(gyro_nccl *nccl, uint32_t wait_ms);

#ifdef __cplusplus
}
#endif

#endif  /* GYROSTAT_NCCL_H_ */
