// What tests/bench/client/run counts: reports of 128 layers × 128 heads through the C ABI, beside a memcpy of the same
// floats. No daemon is needed; what is measured never waits for one.
//
//   bench_client STEPS
//
// Counts nothing itself. Each way of doing a step is a function of its own, which callgrind is told to collect in. It
// is called STEPS times; before that, the same steps run under another name, so that what happens once (symbols bound,
// windows filled) is not in it.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "gyrostat/gyrostat.h"

namespace {

constexpr size_t kLayers = 128, kHeads = 128;
constexpr int kWarmUp = 256;    // Steps; the client's spike scores look back over 128.
constexpr int kStepsMax = 512;  // So that the ring is never full: a dropped report costs nothing and would flatter.

// The arrays of one report, as the bench of ingest sends them.
struct Values {
  std::vector<float> maxima = std::vector<float>(kLayers * kHeads, 8.0f);
  std::vector<float> layer_grad_norm = std::vector<float>(kLayers, 1.0f);
  std::vector<float> hidden_ms = std::vector<float>(kLayers + 1, 1.0f);
  std::vector<float> hidden_absmax = std::vector<float>(kLayers + 1, 4.0f);
};

[[noreturn]] void Die(const char* message, const char* detail) {
  std::fprintf(stderr, "bench_client: %s: %s\n", message, detail);
  std::exit(2);
}

void Check(gyro_status status, const char* call) {
  if (status != GYRO_OK) Die(call, gyro_strerror(status));
}

// What a step has beside its maxima.
inline void RecordRest(gyro_client* client, const Values& values, double noise) {
  Check(gyro_record_scalar(client, "loss", 2 + noise), "loss");
  Check(gyro_record_scalar(client, "learning_rate", 3e-4), "learning_rate");
  Check(gyro_record_scalar(client, "grad_norm", 1 + noise), "grad_norm");
  Check(gyro_record_array(client, "layer_grad_norm", values.layer_grad_norm.data(), kLayers), "layer_grad_norm");
  Check(gyro_record_array(client, "hidden_ms", values.hidden_ms.data(), kLayers + 1), "hidden_ms");
  Check(gyro_record_array(client, "hidden_absmax", values.hidden_absmax.data(), kLayers + 1), "hidden_absmax");
}

inline void WholeStep(gyro_client* client, const Values& values, int step) {
  Check(gyro_step_begin(client, step), "step_begin");
  Check(gyro_record_attn_logit_max(client, values.maxima.data(), kLayers * kHeads, GYRO_LOGIT_EXACT), "maxima");
  RecordRest(client, values, step % 7 * 1e-3);
  Check(gyro_step_end(client), "step_end");
}

inline void LayerStep(gyro_client* client, const Values& values, int step) {
  Check(gyro_step_begin(client, step), "step_begin");
  for (uint32_t layer = 0; layer < kLayers; ++layer)
    Check(gyro_record_layer_attn_logit_max(client, layer, values.maxima.data() + layer * kHeads, kHeads,
                                           GYRO_LOGIT_EXACT),
          "maxima of a layer");
  RecordRest(client, values, step % 7 * 1e-3);
  Check(gyro_step_end(client), "step_end");
}

inline void CopyStep(float* to, const Values& values) {
  for (const auto* from : {&values.maxima, &values.layer_grad_norm, &values.hidden_ms, &values.hidden_absmax}) {
    std::memcpy(to, from->data(), from->size() * sizeof(float));
    to += kLayers * kHeads;                       // Every array begins at a multiple of 64 bytes, as the client's do.
    __asm__ volatile("" : : "r"(to) : "memory");  // The copy is made though nobody reads it.
  }
}

}  // namespace

extern "C" {

// What callgrind collects in, by name.
__attribute__((noinline)) void bench_whole(gyro_client* client, const Values& values, int step) {
  WholeStep(client, values, step);
}
__attribute__((noinline)) void bench_by_layer(gyro_client* client, const Values& values, int step) {
  LayerStep(client, values, step);
}
__attribute__((noinline)) void bench_copy(float* to, const Values& values) { CopyStep(to, values); }

}  // extern "C"

int main(int argc, char** argv) {
  const int steps = argc == 2 ? std::atoi(argv[1]) : 0;
  if (steps < 1 || steps > kStepsMax) Die("usage: bench_client STEPS", "STEPS is 1 to 512");
  gyro_options options;
  gyro_options_init(&options);
  options.address = "127.0.0.1:1";
  options.ring_reports = kWarmUp + 2 * kStepsMax;
  options.model.layers = kLayers;
  options.model.heads = kHeads;
  gyro_client* client = nullptr;
  Check(gyro_open(&options, &client), "gyro_open");

  const Values values;
  constexpr std::align_val_t kAlignment{64};
  auto* const to = static_cast<float*>(operator new(4 * kLayers * kHeads * sizeof(float), kAlignment));
  int step = 0;
  for (int i = 0; i < kWarmUp; ++i) {
    if (i % 2 == 0) WholeStep(client, values, step++);
    if (i % 2 == 1) LayerStep(client, values, step++);
    CopyStep(to, values);
  }
  for (int i = 0; i < steps; ++i) {
    bench_whole(client, values, step++);
    bench_by_layer(client, values, step++);
    bench_copy(to, values);
  }
  operator delete(to, kAlignment);
  gyro_close(client, 0);
  return 0;
}
