// A training loop of several ranks in C++, each a process, that agree on what they apply through Gloo. Data-parallel:
// each rank holds all weights and sees batches of its own, so only all of them together know a head's maximum.
//
//   RANK=r WORLD_SIZE=n GYROSTAT_ADDRESS=host:port gyrostat-example-ranks DIRECTORY PREFIX [STEPS [STEP_MS]]
//
// Start it once for each rank. DIRECTORY is one that all ranks see, PREFIX a name that no launch has used before.
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <gyrostat/gloo.h>
#include <gyrostat/gyrostat.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::uint32_t kLayers = 2, kHeads = 4;

// One number stands for the norm of a head's rows.
struct Model {
  std::vector<float> q = std::vector<float>(kLayers * kHeads, 4.0f);
  std::vector<float> k = std::vector<float>(kLayers * kHeads, 4.0f);

  std::vector<float> Measure(long step, std::uint32_t rank) const {
    std::vector<float> maxima(q.size());
    for (std::uint32_t i = 0; i < maxima.size(); ++i) {
      const auto batch = static_cast<float>((static_cast<std::uint64_t>(step) + rank * 3 + i) % 5);
      maxima[i] = q[i] * k[i] * (1.0f - 0.02f * batch);
    }
    return maxima;
  }
  // The gradients were averaged over all ranks, so all take the same step.
  void Train() {
    for (std::uint32_t i = 0; i < q.size(); ++i) q[i] *= 1.0f + 0.004f * static_cast<float>(1 + i);
  }
  gyro_outcome Apply(const gyro_order& order) {
    for (std::uint32_t i = 0; i < order.q_count; ++i)
      q[order.q[i].layer * kHeads + order.q[i].head] *= order.q[i].factor;
    for (std::uint32_t i = 0; i < order.k_count; ++i)
      k[order.k[i].layer * kHeads + order.k[i].head] *= order.k[i].factor;
    return GYRO_APPLIED;
  }
  // Of all bits: equal on ranks whose weights are.
  std::uint64_t Checksum() const {
    std::uint64_t sum = 1469598103934665603u;
    for (const std::vector<float>* weights : {&q, &k})
      for (const float w : *weights) {
        std::uint32_t bits;
        std::memcpy(&bits, &w, sizeof(bits));
        sum = (sum ^ bits) * 1099511628211u;
      }
    return sum;
  }
};

std::uint32_t FromEnvironment(const char* name, std::uint32_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

gyrostat::Options ClientOptions(std::uint32_t rank, std::uint32_t size, const gyro_collective* collective) {
  gyrostat::Options options;  // Address and run come from the environment.
  options.framework = "example of several ranks in C++";
  options.allow = "qk_clip";
  options.logit_kind = GYRO_LOGIT_EXACT;
  options.rank = rank;
  options.world_size = size;
  options.collective = collective;
  options.model.layers = kLayers;
  options.model.heads = kHeads;
  options.model.attention = "mha";
  options.model.qk_norm = "none";
  options.model.master_fp32 = 1;
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s DIRECTORY PREFIX [STEPS [STEP_MS]]\n", argv[0]);
    return 2;
  }
  const long steps = argc > 3 ? std::strtol(argv[3], nullptr, 10) : 100;
  const std::chrono::milliseconds step_time(argc > 4 ? std::strtol(argv[4], nullptr, 10) : 5);

  gyro_gloo_options meeting;
  gyro_gloo_options_init(&meeting);
  meeting.rank = FromEnvironment("RANK", 0);
  meeting.size = FromEnvironment("WORLD_SIZE", 1);
  meeting.directory = argv[1];
  meeting.prefix = argv[2];
  gyro_collective collective = {};
  collective.struct_size = sizeof(collective);
  gyro_gloo* gloo = nullptr;
  if (gyro_gloo_open(&meeting, &collective, &gloo) != GYRO_OK) {
    std::fprintf(stderr, "%s\n", gyro_gloo_error(gloo));
    gyro_gloo_close(gloo, 0);
    return 1;
  }
  collective.replica = meeting.rank;

  gyrostat::Client client(ClientOptions(meeting.rank, meeting.size, &collective));
  Model model;
  float peak = 0;
  int applied = 0;
  gyro_status status = client.status();
  for (long step = 1; step <= steps && status != GYRO_UNSURE; ++step) {
    const std::vector<float> maxima = model.Measure(step, meeting.rank);  // The forward,
    peak = std::max(peak, *std::max_element(maxima.begin(), maxima.end()));
    client.Progress();  // between its layers as well: what all ranks measured in the step before is reported now,
    model.Train();      // the backward and the optimizer step; then one boundary:
    status = client.Step(step, [&](gyrostat::Report& report) {
      report.Scalar("loss", 2.0);
      report.AttnLogitMax(maxima);
    });
    applied += client.ApplyOrders([&](const gyro_order& order) { return model.Apply(order); });
    std::this_thread::sleep_for(step_time);
  }
  // The others may have done what this rank has not: its weights are not to be used any more.
  if (status == GYRO_UNSURE) std::fprintf(stderr, "unsure: %s\n", gyro_gloo_error(gloo));
  client.Close(1000);
  gyro_gloo_close(gloo, 2000);
  std::printf("rank=%u peak=%.1f applied=%d weights=%016" PRIx64 "\n", meeting.rank, peak, applied, model.Checksum());
  return status == GYRO_UNSURE ? 3 : 0;
}
