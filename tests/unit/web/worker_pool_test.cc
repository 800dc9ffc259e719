#include "web/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace gyrostat::web {
namespace {

TEST(WorkerPool, RunsEveryTaskThatFits) {
  std::atomic<int> ran{0};
  WorkerPool pool(3, 100);
  for (int i = 0; i < 100; ++i) pool.enqueue([&] { ran += WorkerPool::MustRefuse() ? 1000 : 1; });
  pool.shutdown();
  EXPECT_EQ(ran, 100);
}

TEST(WorkerPool, HandsWhatFindsNoRoomBackToTheCallerToRefuse) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::promise<void> busy;
  WorkerPool pool(1, 1);
  pool.enqueue([&] {
    busy.set_value();
    released.wait();
  });
  busy.get_future().wait();  // The one thread is taken; the next task waits, the one after finds no room.
  std::atomic<int> waited{0};
  pool.enqueue([&] { waited += WorkerPool::MustRefuse() ? 1000 : 1; });
  std::thread::id refused_on;
  bool refused = false;
  pool.enqueue([&] {
    refused_on = std::this_thread::get_id();
    refused = WorkerPool::MustRefuse();
  });
  EXPECT_TRUE(refused);
  EXPECT_EQ(refused_on, std::this_thread::get_id());
  EXPECT_FALSE(WorkerPool::MustRefuse());
  release.set_value();
  pool.shutdown();
  EXPECT_EQ(waited, 1);
}

TEST(WorkerPool, RefusesAfterShutdown) {
  WorkerPool pool(1, 8);
  pool.shutdown();
  bool refused = false;
  pool.enqueue([&] { refused = WorkerPool::MustRefuse(); });
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace gyrostat::web
