#include "client/src/spsc_queue.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

namespace gyrostat::client {
namespace {

TEST(SpscQueue, IsFullAtItsCapacityAndEmptyAtTheStart) {
  SpscQueue<int> queue(2);
  EXPECT_EQ(queue.Front(), nullptr);
  *queue.Reserve() = 1;
  queue.Commit();
  EXPECT_EQ(queue.Room(), 1u);
  *queue.Reserve() = 2;
  queue.Commit();
  EXPECT_EQ(queue.Reserve(), nullptr);
  EXPECT_EQ(queue.Room(), 0u);
  EXPECT_EQ(*queue.Front(), 1);
  queue.Release();
  EXPECT_NE(queue.Reserve(), nullptr);
  EXPECT_EQ(*queue.Front(), 2);
}

TEST(SpscQueue, ReservingTwiceGivesTheSameSlot) {
  SpscQueue<int> queue(4);
  int* const first = queue.Reserve();
  EXPECT_EQ(queue.Reserve(), first);
  EXPECT_EQ(queue.Front(), nullptr) << "reserved is not committed";
}

TEST(SpscQueue, ACapacityOfOneWorks) {
  SpscQueue<int> queue(1);
  for (int i = 0; i < 5; ++i) {
    *queue.Reserve() = i;
    queue.Commit();
    EXPECT_EQ(queue.Reserve(), nullptr);
    EXPECT_EQ(*queue.Front(), i);
    queue.Release();
  }
}

TEST(SpscQueue, BetweenTwoThreadsNothingIsLostOrReordered) {
  constexpr uint64_t kItems = 20'000;
  SpscQueue<uint64_t> queue(7);
  std::thread producer([&queue] {
    for (uint64_t i = 0; i < kItems;) {
      uint64_t* slot = queue.Reserve();
      if (slot == nullptr) {
        std::this_thread::yield();
        continue;
      }
      *slot = i++;
      queue.Commit();
    }
  });
  for (uint64_t expected = 0; expected < kItems;) {
    const uint64_t* item = queue.Front();
    if (item == nullptr) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(*item, expected);
    ++expected;
    queue.Release();
  }
  producer.join();
}

}  // namespace
}  // namespace gyrostat::client
