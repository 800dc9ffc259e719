#include "store/data_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "support/temp_dir.h"

namespace gyrostat::store {
namespace {

using ::testing::HasSubstr;

TEST(DataDir, IsMadeWithItsParentsAndIsPrivate) {
  const testing::TempDir temp;
  const auto dir = DataDir::Open(temp.File("a/b"));
  ASSERT_TRUE(dir.ok()) << dir.status();
  struct stat info {};
  ASSERT_EQ(stat(temp.File("a/b").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_EQ((*dir)->FilePath("x"), temp.File("a/b/x"));
}

TEST(DataDir, KeepsASecondDaemonOut) {
  const testing::TempDir temp;
  auto first = DataDir::Open(temp.path());
  ASSERT_TRUE(first.ok());
  const auto second = DataDir::Open(temp.path());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(second.status().message(), "data directory " + temp.path() + " is in use by another gyrostatd (pid " +
                                           std::to_string(getpid()) + ")");
  first->reset();
  EXPECT_TRUE(DataDir::Open(temp.path()).ok());
}

TEST(DataDir, SaysWhatIsInTheWay) {
  const testing::TempDir temp;
  std::ofstream(temp.File("file")) << "x";
  const auto in_file = DataDir::Open(temp.File("file/dir"));
  EXPECT_EQ(in_file.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(in_file.status().message()),
              HasSubstr("data directory " + temp.File("file/dir") + ": cannot be made: Not a directory"));
  const auto is_file = DataDir::Open(temp.File("file"));
  EXPECT_THAT(std::string(is_file.status().message()), HasSubstr("cannot be written: Not a directory"));
}

TEST(DataDir, RefusesADirectoryThatCannotBeWritten) {
  // The process file system takes no files, not even from root.
  const auto dir = DataDir::Open("/proc/self");
  EXPECT_EQ(dir.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(dir.status().message()), HasSubstr("data directory /proc/self: cannot be written: "));
}

}  // namespace
}  // namespace gyrostat::store
