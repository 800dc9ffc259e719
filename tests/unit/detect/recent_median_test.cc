#include "detect/recent_median.h"

#include <gtest/gtest.h>

#include "base/archive.h"

namespace gyrostat::detect {
namespace {

TEST(RecentMedian, IsTheLowerMiddleOfWhatThereIs) {
  RecentMedian<5> recent;
  EXPECT_FALSE(recent.known());
  const double values[] = {7, 3, 9, 1, 5, 1e30, -1e30, 4};
  const double medians[] = {7, 3, 7, 3, 5, 5, 5, 4};
  for (size_t i = 0; i < 8; ++i) {
    recent.Observe(values[i]);
    EXPECT_EQ(recent.median(), medians[i]) << i;
  }
  recent.Clear();
  EXPECT_FALSE(recent.known());
}

TEST(RecentMedian, GoesOnAfterSaveAndLoadAndRefusesWhatItCannotBe) {
  RecentMedian<3> recent;
  for (const double v : {1.0, 2.0, 3.0, 4.0}) recent.Observe(v);
  base::ByteWriter out;
  base::SaveTo(&out, recent);
  RecentMedian<3> back;
  base::ByteReader in(out.bytes());
  ASSERT_TRUE(base::LoadFrom(&in, &back));
  recent.Observe(0), back.Observe(0);
  EXPECT_EQ(back.median(), recent.median());
  std::string bytes = out.bytes();
  bytes[bytes.size() - 1] = 9;  // The place of the next value.
  base::ByteReader bad(bytes);
  EXPECT_FALSE(base::LoadFrom(&bad, &back));
}

}  // namespace
}  // namespace gyrostat::detect
