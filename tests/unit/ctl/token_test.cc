#include "ctl/token.h"

#include <gtest/gtest.h>

#include <fstream>

#include "ctl/address.h"
#include "support/temp_dir.h"

namespace gyrostat::ctl {
namespace {

constexpr char kHere[] = "127.0.0.1:7431";

class ReadTokenTest : public ::testing::Test {
 protected:
  std::string File(const std::string& content) const {
    std::ofstream(dir_.File("token")) << content;
    return dir_.File("token");
  }
  testing::TempDir dir_;
};

TEST_F(ReadTokenTest, TakesTheFirstLineWithoutItsEnds) {
  EXPECT_EQ(*ReadToken(File("s3cret\n"), kHere), "s3cret");
  EXPECT_EQ(*ReadToken(File("  s3cret \r\nnext"), kHere), "s3cret");
  EXPECT_EQ(*ReadToken(File("s3cret"), kHere), "s3cret");
}

TEST_F(ReadTokenTest, RefusesWhatIsNoTokenAndNeverShowsIt) {
  for (const std::string& bad : {std::string(""), std::string("\n"), std::string("   \n"), std::string("hush hush"),
                                 std::string("hush\x01"), std::string(4097, 'h'), std::string("hush\xc3\xa9")}) {
    const auto token = ReadToken(File(bad), kHere);
    ASSERT_FALSE(token.ok());
    EXPECT_NE(token.status().message().find("/token"), std::string::npos) << "names the file";
    EXPECT_EQ(token.status().message().find("hush"), std::string::npos) << "but not what is in it";
  }
}

TEST_F(ReadTokenTest, NamesAFileThatCannotBeRead) {
  const auto token = ReadToken("/nonexistent/token", kHere);
  EXPECT_EQ(token.status().message(), "--token-file /nonexistent/token cannot be read: No such file or directory");
  EXPECT_FALSE(ReadToken("/", kHere).ok());
}

TEST_F(ReadTokenTest, NeverSendsATokenOverTheNetworkInClear) {
  const auto token = ReadToken(File("s3cret"), "gpu7.example:7431");
  EXPECT_NE(token.status().message().find("a token is only sent to this machine"), std::string::npos);
}

TEST(CheckAddress, WantsAPortOrASocket) {
  for (const std::string good :
       {"127.0.0.1:7431", "localhost:1", "gpu7.example:65535", "[::1]:7431", "unix:/run/g.sock"})
    EXPECT_EQ(CheckAddress(good), "") << good;
  for (const std::string bad : {"", "127.0.0.1", ":7431", "host:", "host:0", "host:65536", "host:7x", "::1", "::1:7431",
                                "unix:", "http://127.0.0.1"})
    EXPECT_EQ(CheckAddress(bad), "address \"" + bad +
                                     "\"; wanted HOST:PORT, [IPV6]:PORT or unix:PATH, as 127.0.0.1:7431")
        << bad;
}

TEST(IsOnThisMachine, KnowsLoopbackInAllItsSpellings) {
  for (const std::string here : {"127.0.0.1:7431", "localhost:1", "[::1]:7431", "unix:/run/gyrostat.sock"})
    EXPECT_TRUE(IsOnThisMachine(here)) << here;
  for (const std::string there : {"10.0.0.1:7431", "example.org:1", "[2001:db8::1]:1", "127.0.0.1.example.org:1", ""})
    EXPECT_FALSE(IsOnThisMachine(there)) << there;
}

}  // namespace
}  // namespace gyrostat::ctl
