#include "service/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/temp_dir.h"

namespace gyrostat::service {
namespace {

using ::testing::HasSubstr;

Flags Parsed(const std::vector<std::string>& args) {
  const ParsedFlags parsed = ParseFlags(args, "1.2.3");
  EXPECT_TRUE(parsed.flags.has_value()) << parsed.err;
  return parsed.flags.value_or(Flags{});
}

TEST(Flags, ServeByDefault) {
  const Flags flags = Parsed({});
  EXPECT_EQ(flags.task, Task::kServe);
  EXPECT_FALSE(flags.grpc_listen || flags.http_listen || flags.data_dir);
}

TEST(Flags, NameATask) {
  EXPECT_EQ(Parsed({"--check"}).task, Task::kCheck);
  EXPECT_EQ(Parsed({"--list-metrics"}).task, Task::kListMetrics);
  EXPECT_EQ(Parsed({"--print-default-config"}).task, Task::kPrintDefaultConfig);
  EXPECT_EQ(Parsed({"--test-notify"}).task, Task::kTestNotify);
}

TEST(Flags, AnswerVersionAndHelpThemselves) {
  const ParsedFlags version = ParseFlags({"--version"}, "1.2.3");
  EXPECT_FALSE(version.flags);
  EXPECT_EQ(version.exit_code, kExitDone);
  EXPECT_EQ(version.out, "gyrostatd 1.2.3\n");
  const ParsedFlags help = ParseFlags({"--help"}, "1.2.3");
  EXPECT_EQ(help.exit_code, kExitDone);
  for (const char* word : {"--config", "--grpc-listen", "--http-listen", "--data-dir", "--check", "--list-metrics",
                           "--print-default-config", "Examples:", "SIGHUP", "endpoints.json", "Exit codes:"})
    EXPECT_THAT(help.out, HasSubstr(word));
}

TEST(Flags, RefuseWhatIsNoUsage) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--bogus"}, {"positional"}, {"--config"}, {"--check", "--list-metrics"}}) {
    const ParsedFlags parsed = ParseFlags(args, "1");
    EXPECT_FALSE(parsed.flags) << args[0];
    EXPECT_EQ(parsed.exit_code, kExitUsage) << args[0];
    EXPECT_FALSE(parsed.err.empty()) << args[0];
  }
}

TEST(Flags, WinOverTheFile) {
  const testing::TempDir dir;
  const std::string file = dir.File("g.yaml");
  std::ofstream(file) << "listen: {grpc: '127.0.0.1:1', http: '127.0.0.1:2'}\ndata_dir: /from/the/file\n";
  const auto config = LoadConfig(Parsed({"--config", file, "--http-listen", "[::1]:3", "--data-dir=/from/the/flag"}));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rpc.listen, "127.0.0.1:1");
  EXPECT_EQ(config->http_listen, "[::1]:3");
  EXPECT_EQ(config->data_dir, "/from/the/flag");
  EXPECT_EQ(LoadConfig(Flags{})->data_dir, config::DefaultDataDir());
}

TEST(Flags, AreCheckedAsTheFileIs) {
  EXPECT_THAT(std::string(LoadConfig(Parsed({"--grpc-listen", "0.0.0.0:7431"})).status().message()),
              HasSubstr("--grpc-listen: saw '0.0.0.0:7431', accepted is a loopback address"));
  EXPECT_THAT(std::string(LoadConfig(Parsed({"--http-listen", "80"})).status().message()),
              HasSubstr("--http-listen: saw '80', accepted is HOST:PORT"));
  EXPECT_THAT(std::string(LoadConfig(Parsed({"--config", "/none.yaml"})).status().message()),
              HasSubstr("/none.yaml: cannot be read"));
}

}  // namespace
}  // namespace gyrostat::service
