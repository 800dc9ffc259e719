#include "rpc/disk_pool.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

namespace gyrostat::rpc {
namespace {

TEST(DiskPool, RunsJobsInOrderOnAnotherThread) {
  DiskPool pool(8);
  std::vector<int> order;
  std::thread::id where;
  ASSERT_TRUE(pool.Submit([&] { order.push_back(1); }));
  ASSERT_TRUE(pool.Submit([&] { order.push_back(2), where = std::this_thread::get_id(); }));
  pool.Stop();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(DiskPool, RefusesWhatItHasNoRoomFor) {
  DiskPool pool(1);
  std::promise<void> entered, leave;
  ASSERT_TRUE(pool.Submit([&] { entered.set_value(), leave.get_future().wait(); }));
  entered.get_future().wait();  // The thread is busy and the queue empty.
  bool ran = false;
  EXPECT_TRUE(pool.Submit([&] { ran = true; }));
  EXPECT_FALSE(pool.Submit([] { ADD_FAILURE(); }));
  leave.set_value();
  pool.Stop();
  EXPECT_TRUE(ran);
}

TEST(DiskPool, TakesNothingOnceStopped) {
  DiskPool pool(4);
  pool.Stop();
  pool.Stop();
  EXPECT_FALSE(pool.Submit([] { ADD_FAILURE(); }));
}

}  // namespace
}  // namespace gyrostat::rpc
