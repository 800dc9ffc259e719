#include "base/bounded_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace gyrostat::base {
namespace {

// Far off: a producer that gets no core meanwhile has not ended.
auto Late() { return std::chrono::steady_clock::now() + std::chrono::hours(1); }

TEST(BoundedQueue, CountsEachDropOnce) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.TryPush(1));
  EXPECT_TRUE(queue.TryPush(2));
  EXPECT_FALSE(queue.TryPush(3));
  EXPECT_FALSE(queue.TryPush(4));
  EXPECT_EQ(queue.dropped(), 2u);
  std::vector<int> got;
  EXPECT_TRUE(queue.PopAllUntil(Late(), &got));
  EXPECT_EQ(got, (std::vector<int>{1, 2}));
}

TEST(BoundedQueue, GivesOutWhatWaitsAfterClose) {
  BoundedQueue<int> queue(2);
  queue.TryPush(1);
  queue.Close();
  std::vector<int> got;
  EXPECT_TRUE(queue.PopAllUntil(Late(), &got));
  EXPECT_FALSE(queue.PopAllUntil(Late(), &got));
  EXPECT_FALSE(queue.Push(2));
  EXPECT_EQ(got.size(), 1u);
}

TEST(BoundedQueue, PassesEverythingInOrderBetweenThreads) {
  BoundedQueue<int> queue(8);
  std::thread producer([&] {
    for (int i = 0; i < 10000; ++i) ASSERT_TRUE(queue.Push(i));
    queue.Close();
  });
  std::vector<int> got;
  while (queue.PopAllUntil(Late(), &got)) {
  }
  producer.join();
  ASSERT_EQ(got.size(), 10000u);
  for (int i = 0; i < 10000; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace gyrostat::base
