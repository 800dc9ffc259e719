#include "notify/signature.h"

#include <gtest/gtest.h>

namespace gyrostat::notify {
namespace {

// From Python: hmac.new(b"key", b'1700000000.{"a":1}', "sha256").hexdigest().
TEST(Signature, IsWhatAReceiverComputes) {
  const std::string wanted = "v1=a438e398bfafc57e4396bb7fc2304422f0f768e965d073ca313cb52e22e6ad03";
  EXPECT_EQ(Signature("key", 1'700'000'000, "{\"a\":1}"), wanted);
  const auto headers = SignatureHeaders("key", 1'700'000'000, "{\"a\":1}");
  ASSERT_EQ(headers.size(), 2u);
  EXPECT_EQ(headers[0], "X-Gyrostat-Timestamp: 1700000000");
  EXPECT_EQ(headers[1], "X-Gyrostat-Signature: " + Signature("key", 1'700'000'000, "{\"a\":1}"));
}

TEST(Signature, CoversKeyTimeAndBody) {
  const std::string one = Signature("key", 1, "body");
  EXPECT_NE(one, Signature("kez", 1, "body"));
  EXPECT_NE(one, Signature("key", 2, "body"));
  EXPECT_NE(one, Signature("key", 1, "bodz"));
}

}  // namespace
}  // namespace gyrostat::notify
