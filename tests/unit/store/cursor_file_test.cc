#include "store/cursor_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/temp_dir.h"

namespace gyrostat::store {
namespace {

TEST(CursorFile, KeepsTheNewestValueOfEachName) {
  const testing::TempDir temp;
  const std::string bytes("\0\xff\n7", 4);
  {
    auto file = CursorFile::Open(temp.File("cursors.db"));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(*(*file)->Load("run"), "");
    ASSERT_TRUE((*file)->Save("run", "first").ok());
    ASSERT_TRUE((*file)->Save("run", bytes).ok());
    ASSERT_TRUE((*file)->Save("other/run", "x").ok());
  }
  auto again = CursorFile::Open(temp.File("cursors.db"));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*(*again)->Load("run"), bytes);
  EXPECT_EQ(*(*again)->Load("other/run"), "x");
}

TEST(CursorFile, NamesAFileThatItCannotOpen) {
  const testing::TempDir temp;
  const std::string path = temp.File("directory.db");
  std::filesystem::create_directory(path);
  const auto file = CursorFile::Open(path);
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().message().find(path), std::string::npos) << file.status();
}

}  // namespace
}  // namespace gyrostat::store
