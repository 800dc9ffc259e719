#include "service/endpoints.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/temp_dir.h"

namespace gyrostat::service {
namespace {

TEST(Endpoints, AreWrittenWholeAndRemoved) {
  const testing::TempDir dir;
  ASSERT_TRUE(WriteEndpoints(dir.path(), {"127.0.0.1:1", "127.0.0.1:2"}).ok());
  ASSERT_TRUE(WriteEndpoints(dir.path(), {"unix:/a \"b\"\xff", "[::1]:2"}).ok());
  const auto json = nlohmann::json::parse(std::ifstream(dir.File("endpoints.json")));
  EXPECT_EQ(json["grpc"], "unix:/a \"b\"\xef\xbf\xbd");
  EXPECT_EQ(json["http"], "[::1]:2");
  RemoveEndpoints(dir.path());
  RemoveEndpoints(dir.path());
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "no draft is left behind either";
}

TEST(Endpoints, SayWhichFileCannotBeWritten) {
  const testing::TempDir dir;
  EXPECT_EQ(WriteEndpoints(dir.File("none"), {}).message(),
            dir.File("none/endpoints.json") + ": cannot be written: No such file or directory");
}

}  // namespace
}  // namespace gyrostat::service
