/* gyrostat's client: streams what a training loop measures to a gyrostatd, and brings its orders back.
 *
 * The contract, for every function:
 *  (1) Nothing here blocks, aborts, throws, prints, or installs a signal handler. Every function returns a status.
 *  (2) Between gyro_open and gyro_close, on the training thread: no allocation, no lock, no system call.
 *      (gyro_open, gyro_close, gyro_hold, gyro_rejoin and gyro_state_* may allocate. A client that was given a
 *      collective, and may change something, calls it and waits for it, and allocates where an order is applied:
 *      gyro_collective.)
 *  (3) One thread, the training thread, calls everything that takes a client, but for gyro_stats. That, gyro_strerror
 *      and gyro_version may be called from any thread.
 *  (4) In a forked child every call answers GYRO_INACTIVE and does nothing.
 *  (5) The daemon may be absent, slow, hung or gone: only gyro_stats can tell. Reports wait in a bounded ring and are
 *      dropped when it is full, each counted once.
 *  (6) Structs carry their size in `struct_size`: set it to sizeof(the struct). A newer library reads older structs.
 *  (7) Memory that a call hands out belongs to the library and lives until the next call that says otherwise.
 *
 * Arrays are float32, layer-major. GYRO_ABSENT marks a value that was not measured; it is never zero and never NaN.
 */
#ifndef GYROSTAT_GYROSTAT_H_
#define GYROSTAT_GYROSTAT_H_

#include <float.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define GYRO_API __attribute__((visibility("default")))
#else
#define GYRO_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define GYRO_VERSION "0.1.0"
#define GYRO_ABSENT (-FLT_MAX)
#define GYRO_ID_BYTES 16
#define GYRO_REASON_BYTES 256
#define GYRO_SIGNAL_BYTES_MAX 128

typedef struct gyro_client gyro_client;

/* Do not change the values. */
typedef enum gyro_status {
  GYRO_OK = 0,
  GYRO_NONE = 1,          /* Nothing to poll. Not an error. */
  GYRO_INACTIVE = 2,      /* Switched off, in a forked child, or no address. Not an error. */
  GYRO_DROPPED = 3,       /* The ring was full: this report is lost, and counted. */
  GYRO_INVALID = 4,       /* An argument is wrong; gyro_stats.last_error says which, what was seen and what wanted. */
  GYRO_STATE = 5,         /* Called in the wrong order (record without step_begin, ack of an unknown id). */
  GYRO_UNAVAILABLE = 6,   /* The transport could not be loaded; last_error says why. Training goes on unwatched. */
  GYRO_NO_MEMORY = 7,
  GYRO_UNSURE = 8         /* Of several ranks: the collective, or applying an order, failed on this one, and what the
                             others did is not known. Nothing is applied any more. Restart, or make weights and state
                             equal on all ranks (gyro_state_load everywhere) before the next optimizer step. */
} gyro_status;

typedef enum gyro_outcome {
  GYRO_APPLIED = 1,       /* Every weight that the order names was scaled. */
  GYRO_REFUSED = 2,       /* Nothing was changed; `reason` says why. */
  GYRO_FAILED = 6         /* Something went wrong while applying: weights may be torn. Ends ordering of this epoch. */
} gyro_outcome;

typedef enum gyro_logit_kind {
  GYRO_LOGIT_UNKNOWN = 0,
  GYRO_LOGIT_EXACT = 1,
  GYRO_LOGIT_LSE_UPPER = 2,
  GYRO_LOGIT_SAMPLED_LOWER = 3,
  GYRO_LOGIT_NORM_PRODUCT = 4
} gyro_logit_kind;

/* What the model is. Zero or NULL: not known; what depends on it stays off. Strings are the tokens of gyrostat JSONL:
 * attention mha|gqa|mqa|mla, norm_kind layernorm|rmsnorm, norm_gain plain|unit_offset (a norm applies its gain w as w
 * or as 1 + w), qk_norm none|per_head|flattened,
 * norm_placement post|pre|peri|reordered|deepnorm|mix|hybrid|layernorm_scaling|residual_dual|keel,
 * schedule_kind const|linear|cosine|wsd|noam, compute_dtype fp32|bf16|fp16. */
typedef struct gyro_model {
  uint32_t struct_size;
  uint32_t layers;        /* At most 1024. */
  uint32_t hidden_size;
  uint32_t heads;         /* Query heads; at most 1024. */
  uint32_t kv_heads;      /* 0: as many as heads. Must divide heads. */
  uint32_t head_dim;
  uint32_t vocab_size;
  int32_t master_fp32;    /* 1: the optimizer updates fp32 values (weights or a master copy). 0: no. -1: not known. */
  const char *attention;
  const char *norm_kind;
  const char *norm_placement;
  const char *qk_norm;
  const char *activation;
  const char *compute_dtype;
  const char *optimizer;
  const char *preset;
  const char *schedule_kind;
  double norm_eps;        /* 0: not known. */
  double deepnorm_alpha;
  double deepnorm_beta;   /* Of a loop that can scale the branches' weights. 0: no order changes beta. */
  double logit_softcap;   /* 0: none. */
  double schedule_peak;
  uint64_t warmup_steps;
  uint64_t total_steps;
  const char *norm_gain;
} gyro_model;

/* Rows [row_begin, row_end) of W_q (key 0) or W_k (key 1) of a layer, counted over all heads of the model; a head has
 * model.head_dim rows, or one where that is 0. */
typedef struct gyro_shard {
  uint32_t layer;
  int32_t key;
  uint64_t row_begin, row_end;
} gyro_shard;

/* The job's own collective: an all-reduce MAX over all its ranks, on a communicator of its own. With it, and a kind on
 * the allow-list, the ranks of a job agree on orders (client/README.md, "How ranks agree"): every rank then opens an
 * active client with the same options, calls step_begin, step_end, poll, reset and state_load equally often, and
 * applies what poll gives it: an order that one trainer refuses leaves that rank unsure, since the others apply it.
 * Called on the training thread: once, blocking, in gyro_open; later begun in the last gyro_poll of a boundary (or the
 * next gyro_step_begin) and waited for in the next gyro_step_end, by the leader maybe before (round_done). At most one
 * is under way; the last one is not waited for when the client is closed. Every begin and wait is answered 0, or with
 * anything else where it failed on this rank. */
typedef struct gyro_collective {
  uint32_t struct_size;
  void *context;
  int (*max_begin)(void *context, float *lanes, size_t count);  /* In place; `lanes` live until max_wait is back. */
  int (*max_wait)(void *context, float *lanes, size_t count);   /* No time-out of its own: going on alone is worse. */
  uint32_t replica;         /* Which data-parallel copy of the weights this rank holds a part of. */
  const gyro_shard *shards; /* What of it this rank owns; what others hold as well is owned by one of them. */
  size_t shard_count;       /* 0: all of it. */
  /* An all-reduce SUM, begun right after the MAX and waited for right after it, so that a backend may launch both as
   * one; NULL: none. With it the reports of the leader say what all ranks measured (client/README.md, "One stream for
   * all ranks"); without it what is summed (norms, losses, moments) is the leader's own. */
  int (*sum_begin)(void *context, float *lanes, size_t count);
  int (*sum_wait)(void *context, float *lanes, size_t count);
  /* Not 0: every all-reduce that was begun and not yet waited for, MAX and SUM, is over or has failed, so that its
   * wait returns at once. Never blocks. Asked within a step (gyro_progress), of the leader only, until it says so: the
   * waits of that boundary are then called there and then, in the same order, and not in gyro_step_end. NULL, or a
   * struct without it: the leader waits in gyro_step_end, and orders come a boundary later. */
  int (*round_done)(void *context);
} gyro_collective;

typedef struct gyro_options {
  uint32_t struct_size;
  const char *address;    /* "host:port" of gyrostatd's gRPC port; NULL: $GYROSTAT_ADDRESS; neither: inactive. */
  const char *run;        /* [A-Za-z0-9._:-]{1,128}; NULL: $GYROSTAT_RUN, else "run". */
  const char *framework;  /* For people, e.g. "torch 1.13.1". May be NULL. */
  const char *allow;      /* Kinds the daemon may order, comma-separated, e.g. "qk_clip". NULL or "": none. */
  double tau_min;         /* Clip orders below this tau are refused. 0: any. */
  uint32_t rank;          /* Only rank 0, the leader, holds a stream; without a collective the others are inactive. */
  uint32_t world_size;    /* 0 means 1. Above 1, weight-changing orders need a collective, else they are refused. */
  uint32_t ring_reports;  /* Reports that may wait for the sender. 0: 64. [2, 4096]. */
  uint32_t unacked_reports; /* Reports kept until the daemon has them. 0: 1024. [2, 65536]. */
  uint64_t unacked_bytes; /* And at most this many bytes of them. 0: 32 MiB. */
  const char *transport;  /* Path of the transport library; NULL: libgyrostat_transport.so beside this library. */
  gyro_logit_kind logit_kind; /* How attention maxima are made, unless a record call says otherwise. */
  int32_t logit_scaled, logit_masked, logit_with_bias, logit_pre_cap; /* Convention of the maxima; 0 or 1. */
  int32_t grad_norm_clipped; /* 1: grad_norm is after clipping. */
  const gyro_collective *collective; /* NULL: ranks do not agree. Copied. */
  gyro_model model;       /* Last: it may grow. */
} gyro_options;

/* Rows of a projection that belong to one head, times `factor`. For K, `head` counts key heads. */
typedef struct gyro_head_factor {
  uint32_t layer;
  uint32_t head;
  float factor;           /* (0, 1]. Multiply in fp32, round once to the working type; scale master and working copy. */
} gyro_head_factor;

/* Registers: what an order of any kind but qk_clip sets. The library keeps them (ranks agree on them, checkpoints hold
 * them); the trainer does what they say. Values that are boundaries or counts are whole numbers. */
#define GYRO_REGISTER_LR_SCALE 0       /* lr_scale, [0.01, 1]. gyro_learning_rate applies it. */
#define GYRO_REGISTER_LR_SCALE_UNTIL 1 /* The last boundary it holds at; 0: for good. */
#define GYRO_REGISTER_GRAD_CLIP 2      /* grad_clip: the largest gradient norm that the loop's clipping may leave. */
#define GYRO_REGISTER_SKIP_BOUNDARY 3  /* skip_step: leave the optimizer step of this boundary out. */
#define GYRO_REGISTER_CHECKPOINT 4     /* Requests: do it once. */
#define GYRO_REGISTER_ROLLBACK 5
#define GYRO_REGISTER_HALT 6
#define GYRO_REGISTER_COLLECT_EVERY 7  /* collect: measure attention maxima at every so many steps. */
#define GYRO_REGISTER_RAY_RATE 16      /* warmup_extension: a ray that caps the rate. gyro_learning_rate applies it. */
#define GYRO_REGISTER_RAY_SLOPE 17     /* Per boundary. */
#define GYRO_REGISTER_RAY_BOUNDARY 18
#define GYRO_REGISTER_RAY_UNTIL 19
#define GYRO_REGISTER_FALL_LENGTH 20   /* Of a notch: falls to the floor until the ray begins. */
#define GYRO_REGISTER_FALL_FLOOR 21
#define GYRO_REGISTER_ALPHA 64         /* deepnorm_alpha: + layer. Ramped: gyro_register_value at each boundary. */
#define GYRO_REGISTER_BETA 1088        /* + layer: a factor on the branches' weights, times value / from at once. */

typedef struct gyro_register {
  uint32_t id;
  float from;             /* Its value before this order ... */
  float value;            /* ... and where it goes, over gyro_order.ramp boundaries. */
} gyro_register;

/* One order, checked against this client's own measurements, bounds and allow-list. Apply all of it or none.
 *
 * What the factors go on follows from the model as it was declared:
 *   qk_norm "none"       rows of W_q of each head in q, rows of W_k of each key head in k, and of their biases.
 *   qk_norm "flattened"  the heads' slices of the query norm's and the key norm's gain (and bias) instead.
 *   qk_norm "per_head"   the layer's query gain takes the factor of q, the same for all its heads; its key gain that of
 *                        k, where head is 0.
 *   attention "mla"      q and k of a head go on its rows without rotary embedding; its rotary query rows take q
 *                        times k, rounded once to float; the shared rotary key is not touched.
 * A gain w that the norm applies as 1 + w becomes w * factor + (factor - 1).
 *
 * Other kinds name registers; the ack says that the loop does, from now on, what they say. */
typedef struct gyro_order {
  uint32_t struct_size;
  uint8_t id[GYRO_ID_BYTES];
  char kind[24];          /* "qk_clip", "warmup_extension", "deepnorm_alpha", ... */
  char intent_id[160];
  int32_t local;          /* 1: from this client's own measurement, in local mode; ack it all the same. */
  uint64_t basis_boundary;
  uint64_t expires_boundary;
  double tau;
  uint32_t q_count;       /* Of the query side of these heads ... */
  const gyro_head_factor *q;
  uint32_t k_count;       /* ... and of these key heads. Valid until the ack. */
  const gyro_head_factor *k;
  uint32_t register_count;      /* Of every other kind. Valid until the ack. */
  const gyro_register *registers;
  uint32_t ramp;                /* Boundaries over which they move to their values; 0: at once. */
} gyro_order;

typedef struct gyro_client_stats {
  uint32_t struct_size;
  int32_t connected;          /* 1: a stream is open and welcomed. */
  uint64_t reports_total;     /* step_end calls that took a report. */
  uint64_t reports_acked;     /* Safe in the daemon. */
  uint64_t dropped_hot;       /* Lost because the sender was behind. */
  uint64_t dropped_unacked;   /* Lost because the daemon was away too long. */
  uint64_t invalid_total;     /* Values refused because an argument was wrong. */
  uint64_t reconnects_total;
  uint64_t orders_received, orders_applied, orders_refused;
  uint64_t boundary;          /* Boundaries passed. */
  uint32_t epoch;
  uint64_t ledger_version;
  char last_error[GYRO_REASON_BYTES];  /* The newest trouble in words, or "". */
} gyro_client_stats;

/* Fills `options` with defaults (zeros, struct sizes, logit scaled and masked). */
GYRO_API gyro_status gyro_options_init(gyro_options *options);

/* Opens a client and starts its sender thread, which connects in the background. Returns at once, whatever state the
 * daemon is in (with a collective: once all ranks have called it). `*client` is always set, to an inert client if need
 * be (GYRO_INACTIVE, GYRO_UNAVAILABLE, GYRO_INVALID), so that the loop needs no second path; it is NULL only with
 * GYRO_NO_MEMORY. GYROSTAT_DISABLE=1 makes it inactive (set it on all ranks or on none). */
GYRO_API gyro_status gyro_open(const gyro_options *options, gyro_client **client);

/* Sends what waits, for at most `flush_ms` (250 is a good budget; 0: none), says good-bye and frees the client. */
GYRO_API gyro_status gyro_close(gyro_client *client, uint32_t flush_ms);

/* Begins the report of `step` (within 2^53 of 0). An unfinished report is thrown away. GYRO_DROPPED: the ring is full;
 * the record calls and step_end of this step then answer the same and cost nothing. An order that was polled and not
 * acked counts as GYRO_FAILED from here on. */
GYRO_API gyro_status gyro_step_begin(gyro_client *client, int64_t step);

/* Records a scalar: a signal name of the project's vocabulary ("loss", "grad_norm", ...) or any other valid name, which
 * makes a user scalar (at most 64 a report). The last value of a name in a step wins. NaN and infinities are data.
 * Where ranks reduce, some user scalars have a meaning, each optional: "tokens" weighs this rank's means;
 * "grad_norm_share" is the L2 norm of the gradients that this rank holds, where no rank knows the global one; what
 * ranks of a replica hold alike (norms, replicated embeddings) counts on one of them, as in all norms of shares;
 * "weight_checksum" (of weights that all ranks hold alike), "rank_grad_norm" (before any reduction) and
 * "rank_step_time_ms" (without waiting for others) tell ranks apart (client/README.md, "One stream for all ranks"). */
GYRO_API gyro_status gyro_record_scalar(gyro_client *client, const char *signal, double value);

/* Records an array signal of `count` values ("hidden_ms", "layer_grad_norm", ...). GYRO_INVALID: unknown name, or a
 * length that does not fit the model (where its shape is not known: more than 16384), or a report above 1280 KiB.
 * Copies. */
GYRO_API gyro_status gyro_record_array(gyro_client *client, const char *signal, const float *values, size_t count);

/* Records the attention maxima [layers x heads] with their kind. Copies. */
GYRO_API gyro_status gyro_record_attn_logit_max(gyro_client *client, const float *values, size_t count,
                                                gyro_logit_kind kind);

/* Records the maxima of one layer [heads], taking the maximum with what this step already holds (micro-batches). */
GYRO_API gyro_status gyro_record_layer_attn_logit_max(gyro_client *client, uint32_t layer, const float *values,
                                                      size_t count, gyro_logit_kind kind);

/* Anywhere within a step, as often as you like: between the last gyro_poll of a boundary and the next gyro_step_end,
 * e.g. after each layer's forward. Where ranks agree and this one leads, and the ranks' round of the boundary before
 * has arrived (gyro_collective.round_done), its report leaves now instead of in gyro_step_end, and what the daemon
 * orders is applied a boundary earlier. Nothing else happens earlier, on no rank. Never blocks; on every other client
 * it does nothing, in nanoseconds. The record calls and gyro_learning_rate do the same by the way: a loop that makes
 * them only after its optimizer step calls this in its forward and backward. GYRO_OK, whether something left or not. */
GYRO_API gyro_status gyro_progress(gyro_client *client);

/* Hands the report over. This is boundary b, counted from 1: right after the optimizer step, before the next forward.
 * Computes the spike scores of loss and grad_norm. With a collective, waits for the round of the boundary before, which
 * was queued before this whole step; GYRO_UNSURE: see there, the report was taken all the same. */
GYRO_API gyro_status gyro_step_end(gyro_client *client);

/* The next order to apply at this boundary, or GYRO_NONE. Call after step_end, until GYRO_NONE. Orders that may not be
 * applied (foreign, expired, outside bounds, not allowed) never show here: they are refused and acked by the library.
 * Each polled order must be acked before the next poll. */
GYRO_API gyro_status gyro_poll(gyro_client *client, gyro_order *order);

/* Says what became of the polled order. GYRO_APPLIED moves the ledger. `reason` may be NULL; it is copied, cut to
 * GYRO_REASON_BYTES - 1. */
GYRO_API gyro_status gyro_ack(gyro_client *client, const uint8_t *id, gyro_outcome outcome, const char *reason);

/* The rate for the optimizer step to come, given what the job's own schedule says: the least of it and all caps of
 * warm-up extensions, times lr_scale; never above `base`. Use it in that step only, and let the schedule go on from its
 * own: a scheduler that computed from a lowered rate would compound it. Without an order, and on an inactive client,
 * `*rate` is `base`. Call once per step, before gyro_step_begin: envelopes end by what it was told. */
GYRO_API gyro_status gyro_learning_rate(gyro_client *client, double base, double *rate);

/* What a register says from this boundary on; ramps move at each. Before any order: alpha is the declared one (else 1),
 * beta, lr_scale and the floor 1, all others 0. GYRO_INVALID: the job has no such register. */
GYRO_API gyro_status gyro_register_value(gyro_client *client, uint32_t id, float *value);

/* What the model shows a register to be, read back from it (alpha): ranks that differ hold. Between step_end and the
 * last gyro_poll of a boundary, after the model was given what gyro_register_value says there. What is read must be
 * that float32, bit for bit; a rank without the layer observes nothing and agrees with who does. */
GYRO_API gyro_status gyro_observe(gyro_client *client, uint32_t id, float value);

/* The trainer's kill switch: while `reason` is not NULL nothing is applied (of several ranks: on any of them, from the
 * next boundary on), and orders are refused with it. For bindings that broke, or a person's stop. Copied. */
GYRO_API gyro_status gyro_hold(gyro_client *client, const char *reason);

/* The weights got another history (in-process rollback or load): a new epoch, a ledger at zero, open orders void. */
GYRO_API gyro_status gyro_reset(gyro_client *client);

/* Ranks came or went in this process's lifetime (elastic training). Between boundaries, on every rank that goes on,
 * with the collective, the rank and the number of ranks from now on; new ranks call gyro_open with them at the same
 * place. Blocks until all have joined, in a new epoch: all orders die. Boundaries go on from the furthest rank's. The
 * old collective must be over: nothing may touch its lanes any more. Ledger and registers stay. Where a rank is new,
 * unsure, or has missed a boundary, nothing is applied until all load one state (gyro_state_save on one,
 * gyro_state_load on all; or gyro_reset on all). Who holds the stream stays rank 0; a new leader begins a new
 * attempt. GYRO_INVALID: no collective from the beginning, or a wrong argument; nobody has been joined then. */
GYRO_API gyro_status gyro_rejoin(gyro_client *client, const gyro_collective *collective, uint32_t rank,
                                 uint32_t world_size);

/* State for the trainer's checkpoint (ledger, version, outcomes). `*data` belongs to the client until the next call of
 * gyro_state_save or gyro_close. Works on an inactive client too. */
GYRO_API gyro_status gyro_state_save(gyro_client *client, const uint8_t **data, size_t *size);
/* Restores it, in a new epoch. GYRO_INVALID: not a state of ours; nothing changes. */
GYRO_API gyro_status gyro_state_load(gyro_client *client, const uint8_t *data, size_t size);

/* Any thread. */
GYRO_API gyro_status gyro_stats(const gyro_client *client, gyro_client_stats *stats);
/* A constant sentence for a status. Never NULL. */
GYRO_API const char *gyro_strerror(gyro_status status);
GYRO_API const char *gyro_version(void);

#ifdef __cplusplus
}
#endif

#endif  /* GYROSTAT_GYROSTAT_H_ */
