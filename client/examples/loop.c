/* A training loop in C with gyrostat in it. The "model" is two layers of four heads whose attention logits grow by some
 * percent a step, as in a run about to diverge; orders from gyrostatd scale W_q and W_k back.
 *
 *   loop [STEPS [STEP_MS]]      needs no daemon; with one, set GYROSTAT_ADDRESS=host:port
 */
#include <gyrostat/gyrostat.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kLayers = 2, kHeads = 4, kDim = 8 };

/* Rows of W_q and W_k that belong to each head, and the growth that training puts on each. */
static float wq[kLayers][kHeads][kDim], wk[kLayers][kHeads][kDim];

static void init_model(void) {
  for (int l = 0; l < kLayers; ++l)
    for (int h = 0; h < kHeads; ++h)
      for (int d = 0; d < kDim; ++d) wq[l][h][d] = wk[l][h][d] = 2.0f;
}

/* One optimizer step: each head grows at its own pace. Returns the loss. */
static double train(int64_t step) {
  for (int l = 0; l < kLayers; ++l)
    for (int h = 0; h < kHeads; ++h)
      for (int d = 0; d < kDim; ++d) {
        const float growth = 1.0f + 0.005f * (float)(1 + l * kHeads + h);
        wq[l][h][d] *= growth;
        wk[l][h][d] *= growth;
      }
  return 2.0 + 2.0 / (1.0 + 0.01 * (double)step);
}

/* The forward's largest softmax input of each head, layer-major: q.k / sqrt(dim) on the one input there is. */
static float measure(float maxima[kLayers * kHeads]) {
  float highest = 0;
  for (int l = 0; l < kLayers; ++l)
    for (int h = 0; h < kHeads; ++h) {
      float dot = 0;
      for (int d = 0; d < kDim; ++d) dot += wq[l][h][d] * wk[l][h][d];
      maxima[l * kHeads + h] = dot / sqrtf((float)kDim);
      if (maxima[l * kHeads + h] > highest) highest = maxima[l * kHeads + h];
    }
  return highest;
}

/* Scales the rows of each head that the order names. A real loop scales biases, master weights and working copies too.
 */
static void apply(const gyro_order* order) {
  for (uint32_t i = 0; i < order->q_count; ++i)
    for (int d = 0; d < kDim; ++d) wq[order->q[i].layer][order->q[i].head][d] *= order->q[i].factor;
  for (uint32_t i = 0; i < order->k_count; ++i)
    for (int d = 0; d < kDim; ++d) wk[order->k[i].layer][order->k[i].head][d] *= order->k[i].factor;
}

static void pass_time(long milliseconds) {
  const struct timespec span = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&span, NULL);
}

int main(int argc, char** argv) {
  const long steps = argc > 1 ? strtol(argv[1], NULL, 10) : 100, step_ms = argc > 2 ? strtol(argv[2], NULL, 10) : 5;

  gyro_options options;
  gyro_options_init(&options); /* Address and run come from the environment. */
  options.framework = "example in C";
  options.allow = "qk_clip"; /* Without this line nothing may be changed. */
  options.logit_kind = GYRO_LOGIT_EXACT;
  options.model.layers = kLayers;
  options.model.heads = kHeads;
  options.model.head_dim = kDim;
  options.model.attention = "mha";
  options.model.qk_norm = "none";
  options.model.master_fp32 = 1;

  gyro_client* client = NULL;
  const gyro_status opened = gyro_open(&options, &client);
  printf("gyrostat: %s\n", gyro_strerror(opened)); /* The loop below is the same whatever it said. */

  init_model();
  float maxima[kLayers * kHeads], peak = 0, last = 0;
  for (int64_t step = 1; step <= steps; ++step) {
    last = measure(maxima); /* The forward ... */
    if (last > peak) peak = last;
    const double loss = train(step); /* ... the backward and the optimizer step; then one boundary: */
    gyro_step_begin(client, step);
    gyro_record_scalar(client, "loss", loss);
    gyro_record_attn_logit_max(client, maxima, kLayers * kHeads, GYRO_LOGIT_UNKNOWN);
    gyro_step_end(client);
    gyro_order order = {.struct_size = sizeof(order)};
    while (gyro_poll(client, &order) == GYRO_OK) {
      apply(&order);
      gyro_ack(client, order.id, GYRO_APPLIED, NULL);
    }
    pass_time(step_ms);
  }

  gyro_client_stats stats = {.struct_size = sizeof(stats)};
  gyro_stats(client, &stats);
  gyro_close(client, 1000);
  printf("steps=%ld peak=%.1f last=%.1f reports=%llu orders_applied=%llu\n", steps, peak, last,
         (unsigned long long)stats.reports_total, (unsigned long long)stats.orders_applied);
  return 0;
}
