#include "client/src/counters.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

namespace gyrostat::client {
namespace {

std::string Read(const ErrorCell& cell) {
  char text[GYRO_REASON_BYTES];
  return cell.Get(text) ? text : "(changed too often)";
}

TEST(ErrorCell, KeepsTheNewestTextAndCutsALongOne) {
  ErrorCell cell;
  EXPECT_EQ(Read(cell), "");
  cell.Set("first");
  cell.Set("second");
  EXPECT_EQ(Read(cell), "second");
  cell.Set(std::string(1000, 'x'));
  EXPECT_EQ(Read(cell), std::string(GYRO_REASON_BYTES - 1, 'x'));
}

TEST(ErrorCell, TellsWhichOfTwoIsNewer) {
  ErrorCell a, b;
  EXPECT_FALSE(a.NewerThan(b));
  a.Set("a");
  EXPECT_TRUE(a.NewerThan(b));
  b.Set("b");
  EXPECT_TRUE(b.NewerThan(a));
}

TEST(ErrorCell, AReaderNeverSeesTwoTextsMixed) {
  ErrorCell cell;
  const std::string a(200, 'a'), b(200, 'b');
  cell.Set(a);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int i = 0; i < 20'000; ++i) cell.Set(i % 2 == 0 ? b : a);
    done = true;
  });
  while (!done) {
    char text[GYRO_REASON_BYTES];
    if (!cell.Get(text)) continue;
    ASSERT_TRUE(text == a || text == b) << text;
  }
  writer.join();
}

}  // namespace
}  // namespace gyrostat::client
