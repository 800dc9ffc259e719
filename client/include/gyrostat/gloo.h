/* Ranks that agree through Gloo: a gyro_collective for loops in C++ that have no collective of their own on the host.
 * Link libgyrostat_gloo.so (it needs libgloo; libgyrostat.so does not).
 *
 *   gyro_collective collective;
 *   gyro_gloo *gloo;
 *   gyro_gloo_open(&options, &collective, &gloo);   // all ranks
 *   collective.replica = data_parallel_rank;        // and shards, where a rank holds a part
 *   client_options.collective = &collective;        // then gyro_open, the loop, gyro_close
 *   gyro_gloo_close(gloo, 1000);
 *
 * The all-reduces run on one thread of the library's own; begin hands them over and returns, wait waits. A wait has no
 * time-out. When a rank dies its connections break; every rank that sees one break closes its own, so that all others
 * see it too, whoever they were waiting for: their waits come back with a failure, and every later round fails at once.
 * (A machine that vanishes without closing its connections is seen by nobody: then the job's own collective hangs too.)
 *
 * The connections are neither encrypted nor authenticated: a network that the job's own collectives trust.
 * Not thread-safe: one thread, the training thread, calls everything. Nothing here throws, prints or aborts.
 */
#ifndef GYROSTAT_GLOO_H_
#define GYROSTAT_GLOO_H_

#include "gyrostat/gyrostat.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gyro_gloo gyro_gloo;

/* Where ranks find each other, instead of a directory: keys that one rank sets and others read, e.g. in the job's own
 * store. Called in gyro_gloo_open only, on the calling thread; 0 is success. */
typedef struct gyro_gloo_store {
  uint32_t struct_size;
  void *context;
  int (*set)(void *context, const char *key, const uint8_t *value, size_t size);
  /* Waits until somebody has set `key`, at most `wait_ms`. Writes the value's size, and its first `capacity` bytes. */
  int (*get)(void *context, const char *key, uint8_t *value, size_t capacity, size_t *size, uint32_t wait_ms);
} gyro_gloo_store;

typedef struct gyro_gloo_options {
  uint32_t struct_size;
  uint32_t rank;
  uint32_t size;                /* Ranks in all. [1, 4096]; every two of them hold a connection. */
  const char *directory;        /* Exists, and all ranks see it. One of directory and store. */
  const char *prefix;           /* [A-Za-z0-9._-]{1,100}, the same on all ranks and new for each launch (job and
                                   attempt): what a launch that died has left would mislead the next. */
  const gyro_gloo_store *store;
  const char *address;          /* Host name or address of this rank that the others reach. NULL: see interface_name. */
  const char *interface_name;   /* Or a network device, e.g. "eth0". Neither: loopback, for ranks of one machine. */
  uint32_t connect_timeout_ms;  /* For all ranks to appear in gyro_gloo_open. 0: 60000. At most 86400000. */
} gyro_gloo_options;

/* Fills `options` with defaults. */
GYRO_API gyro_status gyro_gloo_options_init(gyro_gloo_options *options);

/* Meets the other ranks and connects to each: blocks until all have called it, at most about connect_timeout_ms.
 * `*collective` (its struct_size must be set) gets context and functions, other fields stay. `*gloo` is always set
 * unless the status is GYRO_NO_MEMORY; where opening failed every call of the collective fails, so that the loop needs
 * no second path. GYRO_INVALID: an option is wrong; GYRO_UNAVAILABLE: the ranks did not meet; gyro_gloo_error says
 * why. */
GYRO_API gyro_status gyro_gloo_open(const gyro_gloo_options *options, gyro_collective *collective, gyro_gloo **gloo);

/* What went wrong last, in words, or "". Lives until the next call that takes `gloo` or its collective. */
GYRO_API const char *gyro_gloo_error(const gyro_gloo *gloo);

/* Waits at most `wait_ms` for a round that is still under way (the other ranks need this one to take part), then cuts
 * the connections and frees `gloo`. What still hangs then is left behind, never joined. After gyro_close. NULL is
 * fine. */
GYRO_API gyro_status gyro_gloo_close(gyro_gloo *gloo, uint32_t wait_ms);

#ifdef __cplusplus
}
#endif

#endif  /* GYROSTAT_GLOO_H_ */
