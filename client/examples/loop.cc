// A training loop in C++ with gyrostat in it: the same toy as loop.c, with grouped key heads, where one row block of
// W_k serves two query heads.
//
//   loop_cc [STEPS [STEP_MS]]      needs no daemon; with one, set GYROSTAT_ADDRESS=host:port
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <gyrostat/gyrostat.hpp>
#include <thread>
#include <vector>

namespace {

constexpr std::uint32_t kLayers = 2, kHeads = 4, kKeyHeads = 2;

// One number stands for the norm of a head's rows.
struct Model {
  std::vector<float> q = std::vector<float>(kLayers * kHeads, 4.0f);
  std::vector<float> k = std::vector<float>(kLayers * kKeyHeads, 4.0f);

  std::vector<float> Measure() const {
    std::vector<float> maxima(kLayers * kHeads);
    for (std::uint32_t i = 0; i < maxima.size(); ++i) maxima[i] = q[i] * k[i * kKeyHeads / kHeads];
    return maxima;
  }
  void Train() {
    for (std::uint32_t i = 0; i < q.size(); ++i) q[i] *= 1.0f + 0.01f * static_cast<float>(1 + i);
  }
  gyro_outcome Apply(const gyro_order& order) {
    for (std::uint32_t i = 0; i < order.q_count; ++i)
      q[order.q[i].layer * kHeads + order.q[i].head] *= order.q[i].factor;
    for (std::uint32_t i = 0; i < order.k_count; ++i)
      k[order.k[i].layer * kKeyHeads + order.k[i].head] *= order.k[i].factor;
    return GYRO_APPLIED;
  }
};

long Argument(int argc, char** argv, int i, long otherwise) {
  return argc > i ? std::strtol(argv[i], nullptr, 10) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const long steps = Argument(argc, argv, 1, 100);
  const std::chrono::milliseconds step_time(Argument(argc, argv, 2, 5));

  gyrostat::Options options;  // Address and run come from the environment.
  options.framework = "example in C++";
  options.allow = "qk_clip";  // Without this line nothing may be changed.
  options.logit_kind = GYRO_LOGIT_EXACT;
  options.model.layers = kLayers;
  options.model.heads = kHeads;
  options.model.kv_heads = kKeyHeads;
  options.model.attention = "gqa";
  options.model.qk_norm = "none";
  options.model.master_fp32 = 1;
  gyrostat::Client client(options);
  std::printf("gyrostat: %s\n", gyrostat::ToString(client.status()).c_str());

  Model model;
  float peak = 0, last = 0;
  for (long step = 1; step <= steps; ++step) {
    const std::vector<float> maxima = model.Measure();  // The forward,
    last = *std::max_element(maxima.begin(), maxima.end());
    peak = std::max(peak, last);
    model.Train();  // the backward and the optimizer step; then one boundary:
    client.Step(step, [&](gyrostat::Report& report) {
      report.Scalar("loss", 2.0);
      report.AttnLogitMax(maxima);
    });
    client.ApplyOrders([&](const gyro_order& order) { return model.Apply(order); });
    std::this_thread::sleep_for(step_time);
  }

  const gyro_client_stats stats = client.Stats();
  client.Close(1000);
  std::printf("steps=%ld peak=%.1f last=%.1f reports=%llu orders_applied=%llu\n", steps, peak, last,
              static_cast<unsigned long long>(stats.reports_total),
              static_cast<unsigned long long>(stats.orders_applied));
}
