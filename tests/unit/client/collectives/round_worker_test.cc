#include "client/collectives/round_worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace gyrostat::collectives {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong(120000);

TEST(RoundWorker, BeginReturnsWhileTheRoundRuns) {
  std::promise<void> go;
  auto worker = RoundWorker::Start(
      [gate = go.get_future().share()](Reduction, float* lanes, size_t) {
        gate.wait();
        lanes[0] += 1;
        return std::string();
      },
      nullptr);
  std::vector<float> lanes = {1};
  ASSERT_TRUE(worker->Begin(Reduction::kMax, lanes.data(), 1));
  EXPECT_FLOAT_EQ(lanes[0], 1);
  go.set_value();
  ASSERT_TRUE(worker->Wait(Reduction::kMax, lanes.data(), 1));
  EXPECT_FLOAT_EQ(lanes[0], 2);
}

TEST(RoundWorker, IsDoneOnceAllThatWasBegunIsOverOrHasFailed) {
  std::promise<void> gates[2];
  std::shared_future<void> open[] = {gates[0].get_future().share(), gates[1].get_future().share()};
  auto worker = RoundWorker::Start(
      [open](Reduction kind, float*, size_t) {
        open[static_cast<int>(kind)].wait();
        return std::string(kind == Reduction::kSum ? "the wire is cut" : "");
      },
      nullptr);
  EXPECT_TRUE(worker->Done());
  float lane = 0;
  ASSERT_TRUE(worker->Begin(Reduction::kMax, &lane, 1));
  ASSERT_TRUE(worker->Begin(Reduction::kSum, &lane, 1));
  EXPECT_FALSE(worker->Done());
  gates[0].set_value();
  ASSERT_TRUE(worker->Wait(Reduction::kMax, &lane, 1));
  EXPECT_FALSE(worker->Done());  // The SUM is under way.
  gates[1].set_value();
  std::promise<void> never;
  const std::future<void> pause = never.get_future();
  for (int i = 0; i < kLong.count() && !worker->Done(); ++i) pause.wait_for(milliseconds(1));
  EXPECT_TRUE(worker->Done());
  EXPECT_FALSE(worker->Wait(Reduction::kSum, &lane, 1));
  EXPECT_FALSE(worker->Begin(Reduction::kMax, &lane, 1));  // What was not begun is not waited for.
  EXPECT_TRUE(worker->Done());
}

TEST(RoundWorker, RunsBothKindsInTheOrderOfBeginningWithSignalsBlocked) {
  std::string order;
  std::atomic<bool> blocked = true;
  auto worker = RoundWorker::Start(
      [&](Reduction kind, float*, size_t) {
        order += kind == Reduction::kMax ? 'm' : 's';
        sigset_t now;
        pthread_sigmask(SIG_SETMASK, nullptr, &now);
        if (sigismember(&now, SIGTERM) != 1) blocked = false;
        return std::string();
      },
      nullptr);
  float max = 0, sum = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(worker->Begin(Reduction::kMax, &max, 1));
    ASSERT_TRUE(worker->Begin(Reduction::kSum, &sum, 1));
    ASSERT_TRUE(worker->Wait(Reduction::kSum, &sum, 1));
    ASSERT_TRUE(worker->Wait(Reduction::kMax, &max, 1));
  }
  ASSERT_TRUE(worker->Finish(kLong));
  for (size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], i % 2 == 0 ? 'm' : 's') << i;
  EXPECT_EQ(order.size(), 200u);
  EXPECT_TRUE(blocked);
}

TEST(RoundWorker, ARoundThatWasOverBeforeAnotherFailedIsGood) {
  int runs = 0;
  auto worker = RoundWorker::Start(
      [&](Reduction kind, float* lanes, size_t) {
        ++runs;
        lanes[0] = 9;
        return std::string(kind == Reduction::kSum ? "the wire is cut" : "");
      },
      nullptr);
  float max = 1, sum = 2;
  ASSERT_TRUE(worker->Begin(Reduction::kMax, &max, 1));
  ASSERT_TRUE(worker->Begin(Reduction::kSum, &sum, 1));
  EXPECT_FALSE(worker->Wait(Reduction::kSum, &sum, 1));
  EXPECT_EQ(sum, 2);
  EXPECT_TRUE(worker->Wait(Reduction::kMax, &max, 1));
  EXPECT_EQ(max, 9);
  // From here on nothing is tried.
  EXPECT_FALSE(worker->Begin(Reduction::kMax, &max, 1));
  EXPECT_EQ(worker->error(), "the wire is cut");
  ASSERT_TRUE(worker->Finish(kLong));
  EXPECT_EQ(runs, 2);
}

TEST(RoundWorker, AnotherCountThanBegunIsRefused) {
  auto worker = RoundWorker::Start([](Reduction, float*, size_t) { return std::string(); }, nullptr);
  std::vector<float> lanes(3);
  ASSERT_TRUE(worker->Begin(Reduction::kMax, lanes.data(), 3));
  EXPECT_FALSE(worker->Wait(Reduction::kMax, lanes.data(), 2));
  EXPECT_EQ(worker->error(), "a MAX of 3 lanes was waited for with 2");
}

TEST(RoundWorker, LanesMayGoWhileTheirRoundRuns) {
  auto gate = std::make_shared<std::promise<void>>();
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  auto worker = RoundWorker::Start(
      [wait = gate->get_future().share(), held = std::move(held)](Reduction, float* lanes, size_t count) {
        wait.wait();
        for (size_t i = 0; i < count; ++i) lanes[i] = 1;
        return std::string();
      },
      nullptr);
  {
    std::vector<float> lanes(1000);
    ASSERT_TRUE(worker->Begin(Reduction::kMax, lanes.data(), lanes.size()));
  }
  EXPECT_FALSE(worker->Finish(milliseconds(1)));  // It hangs; nobody joins it.
  float lane = 0;
  EXPECT_FALSE(worker->Begin(Reduction::kSum, &lane, 1));
  EXPECT_EQ(worker->error(), "the collective is closed");
  gate->set_value();
  EXPECT_TRUE(worker->Finish(kLong));
  EXPECT_TRUE(watch.expired());  // What the rounds needed went with the thread.
}

}  // namespace
}  // namespace gyrostat::collectives
