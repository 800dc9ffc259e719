#include "rpc/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gyrostat::rpc {
namespace {

TEST(ListenAddress, TakesLoopbackAndUnixSockets) {
  EXPECT_EQ(ParseListenAddress("127.0.0.1:7431")->Text(), "127.0.0.1:7431");
  EXPECT_EQ(ParseListenAddress("127.8.9.1:0")->Text(), "127.8.9.1:0");
  EXPECT_EQ(ParseListenAddress("localhost:7431")->Text(), "127.0.0.1:7431");
  EXPECT_EQ(ParseListenAddress("[::1]:7431")->Text(), "[::1]:7431");
  EXPECT_EQ(ParseListenAddress("unix:/run/gyrostat.sock")->Text(), "unix:/run/gyrostat.sock");
}

TEST(ListenAddress, RefusesWhatOthersCanReach) {
  for (const char* text : {"0.0.0.0:7431", "10.1.2.3:7431", "[::]:7431", "example.org:7431", "*:7431"}) {
    const auto address = ParseListenAddress(text);
    EXPECT_TRUE(absl::IsInvalidArgument(address.status())) << text;
    EXPECT_THAT(std::string(address.status().message()), testing::HasSubstr("loopback")) << text;
  }
}

TEST(ListenAddress, RefusesWhatIsNoAddress) {
  for (const char* text : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "::1:7431", "unix:"})
    EXPECT_TRUE(absl::IsInvalidArgument(ParseListenAddress(text).status())) << text;
  EXPECT_THAT(std::string(ParseListenAddress("unix:" + std::string(108, 'x')).status().message()),
              testing::HasSubstr("a path of 108 bytes"));
}

TEST(ListenAddress, SaysWhyItCannotBeBound) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(name);
  const int taken = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(bind(taken, reinterpret_cast<sockaddr*>(&name), size), 0);
  ASSERT_EQ(listen(taken, 1), 0);
  ASSERT_EQ(getsockname(taken, reinterpret_cast<sockaddr*>(&name), &size), 0);
  const ListenAddress address{{"127.0.0.1", ntohs(name.sin_port)}, ""};
  EXPECT_EQ(WhyNotBindable(address), "Address already in use");
  close(taken);
  EXPECT_EQ(WhyNotBindable(address), "");
  EXPECT_EQ(WhyNotBindable({{}, "/no such folder/socket"}), "No such file or directory");
}

}  // namespace
}  // namespace gyrostat::rpc
