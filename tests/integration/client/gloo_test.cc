// Ranks over a real Gloo: threads that reduce, and processes whose clients agree through it, one of them killed.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gyrostat/gloo.h"
#include "support/rank_processes.h"
#include "support/right_daemon.h"
#include "support/temp_dir.h"

namespace gyrostat {
namespace {

gyro_gloo_options Options(uint32_t rank, uint32_t size, const std::string& directory) {
  gyro_gloo_options options;
  gyro_gloo_options_init(&options);
  options.rank = rank;
  options.size = size;
  options.directory = directory.c_str();
  options.prefix = "job.1";
  options.connect_timeout_ms = 300'000;  // Of each round too: only what hangs meets it.
  return options;
}

struct Opened {
  explicit Opened(const gyro_gloo_options& options) {
    collective.struct_size = sizeof(collective);
    status = gyro_gloo_open(&options, &collective, &gloo);
  }
  ~Opened() { gyro_gloo_close(gloo, 2000); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  bool Max(std::vector<float>* lanes) {
    return collective.max_begin(collective.context, lanes->data(), lanes->size()) == 0 &&
           collective.max_wait(collective.context, lanes->data(), lanes->size()) == 0;
  }

  gyro_collective collective{};
  gyro_gloo* gloo = nullptr;
  gyro_status status;
};

void OnThreads(uint32_t ranks, const std::function<void(uint32_t)>& run) {
  std::vector<std::jthread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
}

TEST(Gloo, SaysWhenARoundIsOver) {
  const testing::TempDir directory;
  std::atomic<int> begun = 0;
  OnThreads(2, [&](uint32_t rank) {
    Opened opened(Options(rank, 2, directory.path()));
    ASSERT_EQ(opened.status, GYRO_OK) << gyro_gloo_error(opened.gloo);
    const gyro_collective& c = opened.collective;
    EXPECT_NE(c.round_done(c.context), 0);
    while (rank == 1 && begun == 0) std::this_thread::yield();
    std::vector<float> lanes = {static_cast<float>(rank)};
    ASSERT_EQ(c.max_begin(c.context, lanes.data(), 1), 0);
    if (rank == 0) {
      EXPECT_EQ(c.round_done(c.context), 0) << "rank 1 has not begun it";
      begun = 1;
    }
    while (c.round_done(c.context) == 0) std::this_thread::yield();
    EXPECT_EQ(c.max_wait(c.context, lanes.data(), 1), 0);
    EXPECT_EQ(lanes[0], 1);
  });
  // A caller of an older release: its struct ends with the SUM.
  gyro_collective older{};
  older.struct_size = offsetof(gyro_collective, round_done);
  gyro_gloo* gloo = nullptr;
  gyro_gloo_options alone = Options(0, 1, directory.path());
  alone.prefix = "job.2";
  EXPECT_EQ(gyro_gloo_open(&alone, &older, &gloo), GYRO_OK);
  EXPECT_NE(older.sum_wait, nullptr);
  EXPECT_EQ(older.round_done, nullptr);
  gyro_gloo_close(gloo, 0);
}

TEST(Gloo, ReducesMaximaAndSumsThatAreUnderWayTogether) {
  const testing::TempDir directory;
  constexpr uint32_t kRanks = 5;  // Not a power of two, and lanes that five do not divide.
  std::vector<float> maxima[kRanks], sums[kRanks];
  OnThreads(kRanks, [&](uint32_t rank) {
    Opened opened(Options(rank, kRanks, directory.path()));
    ASSERT_EQ(opened.status, GYRO_OK) << gyro_gloo_error(opened.gloo);
    const gyro_collective& c = opened.collective;
    for (int round = 0; round < 50; ++round) {
      std::vector<float> max(1003), sum(77);
      for (size_t i = 0; i < max.size(); ++i) max[i] = static_cast<float>((i * 7 + rank * 13) % 101) - 50;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<float>(i) + 0.1f * static_cast<float>(rank);
      ASSERT_EQ(c.max_begin(c.context, max.data(), max.size()), 0);
      ASSERT_EQ(c.sum_begin(c.context, sum.data(), sum.size()), 0);
      ASSERT_EQ(c.max_wait(c.context, max.data(), max.size()), 0);
      ASSERT_EQ(c.sum_wait(c.context, sum.data(), sum.size()), 0);
      maxima[rank] = max;
      sums[rank] = sum;
    }
  });
  for (size_t i = 0; i < maxima[0].size(); ++i) {
    float wanted = -100;
    for (uint32_t rank = 0; rank < kRanks; ++rank)
      wanted = std::max(wanted, static_cast<float>((i * 7 + rank * 13) % 101) - 50);
    ASSERT_EQ(maxima[0][i], wanted) << i;
  }
  for (size_t i = 0; i < sums[0].size(); ++i) ASSERT_NEAR(sums[0][i], 5 * static_cast<float>(i) + 1, 1e-3) << i;
  for (uint32_t rank = 1; rank < kRanks; ++rank) {
    EXPECT_EQ(std::memcmp(maxima[rank].data(), maxima[0].data(), maxima[0].size() * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(sums[rank].data(), sums[0].data(), sums[0].size() * sizeof(float)), 0);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));  // Rank 0 has swept.
}

TEST(Gloo, MeetsInAStoreOfTheJobs) {
  struct Store {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, std::string> values;
  } store;
  const gyro_gloo_store port = {
      sizeof(port), &store,
      [](void* context, const char* key, const uint8_t* value, size_t size) {
        Store& s = *static_cast<Store*>(context);
        std::lock_guard lock(s.mutex);
        s.values[key].assign(reinterpret_cast<const char*>(value), size);
        s.changed.notify_all();
        return 0;
      },
      [](void* context, const char* key, uint8_t* value, size_t capacity, size_t* size, uint32_t wait_ms) {
        Store& s = *static_cast<Store*>(context);
        std::unique_lock lock(s.mutex);
        if (!s.changed.wait_for(lock, std::chrono::milliseconds(wait_ms), [&] { return s.values.contains(key); }))
          return 1;
        *size = s.values[key].size();
        std::memcpy(value, s.values[key].data(), std::min(*size, capacity));
        return 0;
      }};
  OnThreads(3, [&](uint32_t rank) {
    gyro_gloo_options options = Options(rank, 3, "");
    options.directory = nullptr;
    options.store = &port;
    Opened opened(options);
    ASSERT_EQ(opened.status, GYRO_OK) << gyro_gloo_error(opened.gloo);
    std::vector<float> lanes = {static_cast<float>(rank), -static_cast<float>(rank)};
    ASSERT_TRUE(opened.Max(&lanes));
    EXPECT_EQ(lanes, (std::vector<float>{2, 0}));
  });
}

TEST(Gloo, SaysWhatIsWrong) {
  const testing::TempDir directory;
  const auto error = [&](const std::function<void(gyro_gloo_options*)>& change, gyro_status wanted) {
    gyro_gloo_options options = Options(0, 1, directory.path());
    change(&options);
    Opened opened(options);
    EXPECT_EQ(opened.status, wanted);
    std::vector<float> lanes(3);
    EXPECT_EQ(opened.Max(&lanes), wanted == GYRO_OK);
    return std::string(gyro_gloo_error(opened.gloo));
  };
  EXPECT_EQ(error([](auto* o) { o->rank = 7; }, GYRO_INVALID), "rank is 7, wanted less than size, 1");
  EXPECT_EQ(error([](auto* o) { o->size = 0; }, GYRO_INVALID), "size is 0, wanted 1 to 4096");
  EXPECT_EQ(error([](auto* o) { o->prefix = "../x"; }, GYRO_INVALID),
            "prefix is missing or wrong, wanted 1 to 100 of A-Z a-z 0-9 . _ -");
  EXPECT_EQ(error([](auto* o) { o->directory = nullptr; }, GYRO_INVALID),
            "wanted a directory or a store, and not both");
  EXPECT_NE(error([](auto* o) { o->directory = "/nowhere/at/all"; }, GYRO_UNAVAILABLE).find("/nowhere/at/all"),
            std::string::npos);
  // The other rank never comes.
  const std::string alone = error([](auto* o) { o->size = 2, o->connect_timeout_ms = 1000; }, GYRO_UNAVAILABLE);
  EXPECT_EQ(alone.rfind("rank 0 of 2 did not meet the others: ", 0), 0u) << alone;
  // What that launch has left is not this one's.
  const std::string used = error([](auto*) {}, GYRO_UNAVAILABLE);
  EXPECT_NE(used.find("rank-0 is there already: wanted a prefix that no other launch has used"), std::string::npos)
      << used;
  EXPECT_EQ(error([](auto* o) { o->prefix = "job.2"; }, GYRO_OK), "");
}

TEST(Gloo, RoundsOutOfTurnFailAndChangeNothing) {
  const testing::TempDir directory;
  Opened opened(Options(0, 1, directory.path()));
  const gyro_collective& c = opened.collective;
  float lane = 3;
  EXPECT_NE(c.max_wait(c.context, &lane, 1), 0);
  EXPECT_STREQ(gyro_gloo_error(opened.gloo), "a MAX was waited for and not begun");
  EXPECT_EQ(c.max_begin(c.context, &lane, 1), 0);
  EXPECT_NE(c.max_begin(c.context, &lane, 1), 0);
  EXPECT_STREQ(gyro_gloo_error(opened.gloo), "a MAX was begun before the last one was waited for");
  EXPECT_EQ(c.max_wait(c.context, &lane, 1), 0);
  EXPECT_EQ(lane, 3);
}

// ---- Clients in processes of their own.

constexpr int kRanks = 4, kSteps = 60, kKilledAt = 30, kHeads = 8;

struct Board {
  std::atomic<int> alive;  // Ranks that have not done all their steps.
  uint32_t weights[kRanks][kSteps + 1][kHeads];
  uint32_t applied[kRanks], applied_by_then[kRanks], unsure[kRanks], steps[kRanks];
  float highest[kRanks];
  char gloo_error[kRanks][400];
};

// The toy of lockstep_test.cc: one number a head, whose square is its attention maximum. `killed` dies at kKilledAt,
// in a boundary, when the others have a round under way with it.
void Train(Board* board, int rank, int killed, const std::string& directory) {
  Opened opened(Options(static_cast<uint32_t>(rank), kRanks, directory));
  if (opened.status != GYRO_OK) _exit(3);
  opened.collective.replica = static_cast<uint32_t>(rank);  // Data-parallel: each holds all of the weights.
  const gyro_options options = testing::RightDaemon::Options(rank, kRanks, &opened.collective);
  std::unique_ptr<testing::RightDaemon> daemon;
  if (rank == 0) daemon = std::make_unique<testing::RightDaemon>();
  gyro_client* client = nullptr;
  if (gyro_open(&options, &client) != GYRO_OK) _exit(2);
  std::vector<float> w(kHeads, 4), maxima(kHeads);
  for (int step = 1; step <= kSteps; ++step) {
    for (int h = 0; h < kHeads; ++h) {
      maxima[h] = w[h] * w[h] * (1 - 0.01f * static_cast<float>((step + rank + h) % kRanks));
      board->highest[rank] = std::max(board->highest[rank], maxima[h]);
      w[h] *= 1.02f + 0.001f * static_cast<float>(h);
    }
    gyro_step_begin(client, step);
    gyro_record_attn_logit_max(client, maxima.data(), maxima.size(), GYRO_LOGIT_UNKNOWN);
    if (rank == killed && step == kKilledAt) raise(SIGKILL);
    if (gyro_step_end(client) == GYRO_UNSURE) ++board->unsure[rank];
    gyro_order order{};
    order.struct_size = sizeof(order);
    if (daemon != nullptr && step > 1 && board->unsure[rank] == 0)
      daemon->Answer(static_cast<model::Boundary>(step - 1));
    while (gyro_poll(client, &order) == GYRO_OK) {
      for (uint32_t i = 0; i < order.q_count; ++i) w[order.q[i].layer * 4 + order.q[i].head] *= order.q[i].factor;
      gyro_ack(client, order.id, GYRO_APPLIED, nullptr);
      ++board->applied[rank];
      if (step <= kKilledAt) ++board->applied_by_then[rank];
    }
    for (int h = 0; h < kHeads; ++h) board->weights[rank][step][h] = std::bit_cast<uint32_t>(w[h]);
    ++board->steps[rank];
  }
  // Whoever left would free those that wait for it: nobody leaves before all are done.
  board->alive.fetch_sub(1);
  while (board->alive.load() > 0) sched_yield();
  std::strncpy(board->gloo_error[rank], gyro_gloo_error(opened.gloo), sizeof(board->gloo_error[rank]) - 1);
  gyro_close(client, 200);
  gyro_gloo_close(opened.gloo, 2000);
  _exit(0);
}

using SharedBoard = std::unique_ptr<Board, void (*)(Board*)>;

SharedBoard RunRanks(int killed) {
  const testing::TempDir directory;
  SharedBoard board = testing::NewSharedBoard<Board>();
  board->alive = killed < 0 ? kRanks : kRanks - 1;
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    alarm(600);  // What hangs is a failure: it must not last for ever.
    Train(board.get(), rank, killed, directory.path());
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    int status = 0;
    waitpid(children[static_cast<size_t>(rank)], &status, 0);
    if (rank == killed) EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    else EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << ": " << status;
  }
  return board;
}

TEST(Gloo, ProcessesApplyTheSameOrdersAtTheSameBoundaries) {
  const SharedBoard board = RunRanks(-1);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(std::memcmp(board->weights[rank], board->weights[0], sizeof(board->weights[0])), 0) << rank;
    EXPECT_GT(board->applied[rank], 5u);
    EXPECT_EQ(board->applied[rank], board->applied[0]);
    EXPECT_EQ(board->unsure[rank], 0u);
    EXPECT_STREQ(board->gloo_error[rank], "");
  }
  EXPECT_LT(board->highest[0], 45);  // Without clips 16 exp(0.04 * 60) = 176 and more.
}

// Each rank has two neighbours in Gloo's ring: the one opposite waits for ranks that live, and must learn it from them.
TEST(Gloo, AKilledRankLeavesTheOthersUnsureAndNobodyWaiting) {
  for (const int killed : {1, 3}) {
    const SharedBoard board = RunRanks(killed);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == killed) continue;
      EXPECT_EQ(board->steps[rank], static_cast<uint32_t>(kSteps));
      EXPECT_GE(board->unsure[rank], static_cast<uint32_t>(kSteps - kKilledAt - 1));
      EXPECT_GT(board->applied_by_then[rank], 0u);
      EXPECT_EQ(board->applied[rank], board->applied_by_then[rank]);  // Nothing afterwards.
      EXPECT_NE(std::string(board->gloo_error[rank]).find("an all-reduce failed: "), std::string::npos);
      for (int step = 1; step < kKilledAt; ++step)
        EXPECT_EQ(std::memcmp(board->weights[rank][step], board->weights[0][step], sizeof(board->weights[0][0])), 0);
    }
  }
}

}  // namespace
}  // namespace gyrostat
