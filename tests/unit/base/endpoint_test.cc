#include "base/endpoint.h"

#include <gtest/gtest.h>

namespace gyrostat::base {
namespace {

std::string ErrorOf(std::string_view text) {
  std::string error;
  EXPECT_FALSE(ParseLoopbackEndpoint(text, &error)) << text;
  return error;
}

std::string Normal(std::string_view text) {
  std::string error;
  const auto endpoint = ParseLoopbackEndpoint(text, &error);
  return endpoint ? endpoint->ToString() : error;
}

TEST(Endpoint, TakesLoopbackInAllItsSpellings) {
  EXPECT_EQ(Normal("127.0.0.1:7431"), "127.0.0.1:7431");
  EXPECT_EQ(Normal("127.8.0.1:0"), "127.8.0.1:0");
  EXPECT_EQ(Normal("[::1]:65535"), "[::1]:65535");
  EXPECT_EQ(Normal("localhost:80"), "127.0.0.1:80");
}

TEST(Endpoint, RefusesEveryOtherAddressAndSaysWhy) {
  for (const char* text :
       {"0.0.0.0:7431", "[::]:7431", "10.0.0.1:1", "128.0.0.1:1", "example.org:1", "*:1", "[::ffff:10.0.0.1]:1"})
    EXPECT_NE(ErrorOf(text).find("neither TLS nor authentication"), std::string::npos) << text << ErrorOf(text);
}

TEST(Endpoint, RefusesWhatIsNoHostAndPort) {
  for (const char* text :
       {"", ":", ":7431", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:80 ",
        "::1:7431", "[::1]", "[::1]7431", "[]:1", "127.0.0.1:99999999999999999999"})
    EXPECT_NE(ErrorOf(text).find("accepted is HOST:PORT"), std::string::npos) << text << ": " << ErrorOf(text);
}

TEST(Endpoint, KnowsALoopbackHost) {
  EXPECT_TRUE(IsLoopbackHost("localhost"));
  EXPECT_TRUE(IsLoopbackHost("::1"));
  EXPECT_FALSE(IsLoopbackHost("localhost.example.org"));
  EXPECT_FALSE(IsLoopbackHost("127.0.0.1.example.org"));
  EXPECT_FALSE(IsLoopbackHost(""));
}

}  // namespace
}  // namespace gyrostat::base
