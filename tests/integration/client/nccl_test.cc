// The C ABI of the collective on the device. Clients of four ranks, threads of one process, agree through it on a
// double of NCCL (support/fake_nccl.h), one of them dies; and the real libraries say what is missing where there is no
// device.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gyrostat/nccl.h"
#include "support/fake_nccl.h"
#include "support/paths.h"
#include "support/right_daemon.h"

namespace gyrostat {
namespace {

using testing::FakeNccl;
using testing::FakeStream;

constexpr int kRanks = 4, kSteps = 60, kKilledAt = 30;
constexpr size_t kHeads = 8;

gyro_nccl_libraries Fakes() { return {sizeof(gyro_nccl_libraries), testing::kFakeNccl, testing::kFakeNccl}; }

struct Opened {
  explicit Opened(const gyro_nccl_options& options) {
    collective.struct_size = sizeof(collective);
    status = gyro_nccl_open(&options, &collective, &nccl);
  }
  ~Opened() { gyro_nccl_close(nccl, finish_ms); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  gyro_collective collective{};
  gyro_nccl* nccl = nullptr;
  gyro_status status;
  uint32_t finish_ms = 2000;
};

struct Outcome {
  std::vector<std::vector<float>> weights;  // After each boundary.
  uint32_t applied = 0, applied_by_then = 0, unsure = 0;
  float highest = 0;
  std::string error;
};

// The toy of lockstep_test.cc: one number a head, whose square is its attention maximum.
void Train(const gyro_nccl_id& id, int rank, int killed, Outcome* out) {
  FakeStream stream;
  const gyro_nccl_libraries libraries = Fakes();
  gyro_nccl_options asked;
  gyro_nccl_options_init(&asked);
  asked.rank = static_cast<uint32_t>(rank);
  asked.size = kRanks;
  asked.id = &id;
  asked.stream = &stream;
  asked.libraries = &libraries;
  Opened opened(asked);
  ASSERT_EQ(opened.status, GYRO_OK) << gyro_nccl_error(opened.nccl);
  if (killed < 0) opened.finish_ms = 60'000;  // All rounds end, however late a thread gets a core.
  opened.collective.replica = static_cast<uint32_t>(rank);
  const gyro_options options = testing::RightDaemon::Options(rank, kRanks, &opened.collective);
  std::unique_ptr<testing::RightDaemon> daemon;
  if (rank == 0) daemon = std::make_unique<testing::RightDaemon>();
  gyro_client* client = nullptr;
  ASSERT_EQ(gyro_open(&options, &client), GYRO_OK);
  std::vector<float> w(kHeads, 4), maxima(kHeads);
  for (int step = 1; step <= kSteps; ++step) {
    for (size_t h = 0; h < kHeads; ++h) {
      maxima[h] = w[h] * w[h] * (1 - 0.01f * static_cast<float>((static_cast<size_t>(step + rank) + h) % kRanks));
      out->highest = std::max(out->highest, maxima[h]);
      w[h] *= 1.02f + 0.001f * static_cast<float>(h);
    }
    if (rank == killed && step == kKilledAt) {
      FakeNccl::Kill(id, rank);
      break;
    }
    gyro_step_begin(client, step);
    gyro_record_attn_logit_max(client, maxima.data(), maxima.size(), GYRO_LOGIT_UNKNOWN);
    if (gyro_step_end(client) == GYRO_UNSURE) ++out->unsure;
    gyro_order order{};
    order.struct_size = sizeof(order);
    if (daemon != nullptr && step > 1 && out->unsure == 0) daemon->Answer(static_cast<model::Boundary>(step - 1));
    while (gyro_poll(client, &order) == GYRO_OK) {
      for (uint32_t i = 0; i < order.q_count; ++i) w[order.q[i].layer * 4 + order.q[i].head] *= order.q[i].factor;
      gyro_ack(client, order.id, GYRO_APPLIED, nullptr);
      ++out->applied;
      if (step <= kKilledAt) ++out->applied_by_then;
    }
    out->weights.push_back(w);
  }
  gyro_close(client, 200);
  out->error = gyro_nccl_error(opened.nccl);
}

std::vector<Outcome> RunRanks(int killed) {
  gyro_nccl_id id;
  const gyro_nccl_libraries libraries = Fakes();
  EXPECT_EQ(gyro_nccl_unique_id(&libraries, &id, nullptr, 0), GYRO_OK);
  std::vector<Outcome> outcomes(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back(Train, std::cref(id), rank, killed, &outcomes[static_cast<size_t>(rank)]);
  for (std::thread& rank : ranks) rank.join();
  return outcomes;
}

TEST(Nccl, RanksApplyTheSameOrdersAtTheSameBoundaries) {
  const std::vector<Outcome> ranks = RunRanks(-1);
  for (const Outcome& rank : ranks) {
    EXPECT_EQ(rank.weights, ranks[0].weights);
    EXPECT_GT(rank.applied, 5u);
    EXPECT_EQ(rank.applied, ranks[0].applied);
    EXPECT_EQ(rank.unsure, 0u);
    EXPECT_EQ(rank.error, "");
  }
  EXPECT_LT(ranks[0].highest, 45);  // Without clips 16 exp(0.04 * 60) = 176 and more.
  EXPECT_EQ(FakeNccl::Outstanding(), 0);
}

TEST(Nccl, WhenARankDiesTheOthersAreUnsure) {
  const std::vector<Outcome> ranks = RunRanks(2);
  for (const size_t rank : {0u, 1u, 3u}) {
    EXPECT_EQ(ranks[rank].weights.size(), static_cast<size_t>(kSteps));
    EXPECT_GE(ranks[rank].unsure, static_cast<uint32_t>(kSteps - kKilledAt - 1));
    EXPECT_GT(ranks[rank].applied_by_then, 0u);
    EXPECT_EQ(ranks[rank].applied, ranks[rank].applied_by_then);
    EXPECT_NE(ranks[rank].error.find("a remote process is gone"), std::string::npos) << ranks[rank].error;
  }
}

TEST(Nccl, SaysWhatIsWrong) {
  const gyro_nccl_libraries libraries = Fakes();
  gyro_nccl_id id{};
  const auto error = [&](const std::function<void(gyro_nccl_options*)>& change, gyro_status wanted) {
    gyro_nccl_options options;
    gyro_nccl_options_init(&options);
    options.id = &id;
    options.libraries = &libraries;
    change(&options);
    Opened opened(options);
    EXPECT_EQ(opened.status, wanted);
    float lane = 1;
    EXPECT_NE(opened.collective.max_begin(opened.collective.context, &lane, 1), 0);
    EXPECT_NE(opened.collective.max_wait(opened.collective.context, &lane, 1), 0);
    return std::string(gyro_nccl_error(opened.nccl));
  };
  EXPECT_EQ(error([](auto* o) { o->rank = 3; }, GYRO_INVALID), "rank is 3, wanted less than size, 1");
  EXPECT_EQ(error([](auto* o) { o->id = nullptr; }, GYRO_INVALID), "wanted an id or a communicator, and not both");
  EXPECT_EQ(error([](auto* o) { o->sums = 2; }, GYRO_INVALID), "sums is 2, wanted 0 or 1");
  EXPECT_EQ(error([](auto* o) { o->lanes_max = uint64_t{1} << 40; }, GYRO_INVALID),
            "lanes_max is 1099511627776, wanted at most 67108864");
  // A library that is not there, and one that is another.
  gyro_nccl_libraries missing = libraries, wrong = libraries;
  missing.cudart = "/nowhere/libcudart.so";
  wrong.nccl = testing::kFakeTransport;
  EXPECT_EQ(error([&](auto* o) { o->libraries = &missing; }, GYRO_UNAVAILABLE)
                .rfind("the CUDA runtime cannot be loaded: /nowhere/libcudart.so: ", 0), 0u);
  EXPECT_EQ(error([&](auto* o) { o->libraries = &wrong; }, GYRO_UNAVAILABLE), "NCCL has no ncclGetUniqueId");
  char why[100];
  EXPECT_EQ(gyro_nccl_unique_id(&wrong, &id, why, sizeof(why)), GYRO_UNAVAILABLE);
  EXPECT_STREQ(why, "NCCL has no ncclGetUniqueId");
}

TEST(Nccl, SaysWhenARoundIsOver) {
  const gyro_nccl_libraries libraries = Fakes();
  gyro_nccl_id id{};
  ASSERT_EQ(gyro_nccl_unique_id(&libraries, &id, nullptr, 0), GYRO_OK);
  FakeStream stream;
  gyro_nccl_options options;
  gyro_nccl_options_init(&options);
  options.id = &id;
  options.stream = &stream;
  options.libraries = &libraries;
  Opened opened(options);
  const gyro_collective& c = opened.collective;
  EXPECT_NE(c.round_done(c.context), 0);
  float lane = 1;
  stream.Close();
  ASSERT_EQ(c.max_begin(c.context, &lane, 1), 0);
  EXPECT_EQ(c.round_done(c.context), 0);
  stream.Open();
  stream.Drain();
  EXPECT_NE(c.round_done(c.context), 0);
  EXPECT_EQ(c.max_wait(c.context, &lane, 1), 0);
  // A caller of an older release: its struct ends with the SUM.
  gyro_collective older{};
  older.struct_size = offsetof(gyro_collective, round_done);
  gyro_nccl* nccl = nullptr;
  options.sums = 1;
  ASSERT_EQ(gyro_nccl_unique_id(&libraries, &id, nullptr, 0), GYRO_OK);
  EXPECT_EQ(gyro_nccl_open(&options, &older, &nccl), GYRO_OK);
  EXPECT_NE(older.sum_wait, nullptr);
  EXPECT_EQ(older.round_done, nullptr);
  gyro_nccl_close(nccl, 0);
}

// As far as it goes without a device: functions are found and called, and what they answer is told.
TEST(Nccl, TheRealLibrariesAreLoadedAndTheirErrorsTold) {
  gyro_nccl_id id{};
  char why[400] = "";
  if (gyro_nccl_unique_id(nullptr, &id, why, sizeof(why)) != GYRO_OK) GTEST_SKIP() << "no NCCL here: " << why;
  EXPECT_TRUE(std::any_of(std::begin(id.bytes), std::end(id.bytes), [](uint8_t b) { return b != 0; }));
  gyro_nccl_options options;
  gyro_nccl_options_init(&options);
  options.id = &id;
  Opened opened(options);
  float lanes[] = {1, -2};
  const gyro_collective& c = opened.collective;
  const int begun = c.max_begin(c.context, lanes, 2);
  if (opened.status == GYRO_OK) {  // There is a device: one rank alone.
    EXPECT_EQ(begun, 0) << gyro_nccl_error(opened.nccl);
    EXPECT_EQ(c.max_wait(c.context, lanes, 2), 0) << gyro_nccl_error(opened.nccl);
    EXPECT_EQ(lanes[1], -2);
    return;
  }
  EXPECT_EQ(opened.status, GYRO_UNAVAILABLE);
  EXPECT_NE(begun, 0);
  EXPECT_EQ(std::string(gyro_nccl_error(opened.nccl)).rfind("cudaHostAlloc failed: ", 0), 0u)
      << gyro_nccl_error(opened.nccl);
}

}  // namespace
}  // namespace gyrostat
