#include "service/file_watch.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/temp_dir.h"

namespace gyrostat::service {
namespace {

void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

TEST(FileWatch, SeesAChangeOnceAndOnlyWhenItStandsStill) {
  const testing::TempDir dir;
  const std::string path = dir.File("g.yaml");
  Write(path, "a");
  FileWatch watch(path);
  EXPECT_FALSE(watch.Changed());
  Write(path, "ab");
  EXPECT_FALSE(watch.Changed()) << "it may still be written";
  Write(path, "abc");
  EXPECT_FALSE(watch.Changed()) << "as it was indeed";
  EXPECT_TRUE(watch.Changed());
  EXPECT_FALSE(watch.Changed());
}

TEST(FileWatch, SeesAFileThatWasReplacedOrALinkThatWasTurned) {
  const testing::TempDir dir;
  Write(dir.File("one"), "x");
  Write(dir.File("two"), "x");
  std::filesystem::create_symlink(dir.File("one"), dir.File("g.yaml"));
  FileWatch watch(dir.File("g.yaml"));
  std::filesystem::remove(dir.File("g.yaml"));
  std::filesystem::create_symlink(dir.File("two"), dir.File("g.yaml"));
  EXPECT_FALSE(watch.Changed());
  EXPECT_TRUE(watch.Changed());
}

TEST(FileWatch, IsSilentAboutWhatWasReadAnyway) {
  const testing::TempDir dir;
  const std::string path = dir.File("g.yaml");
  Write(path, "a");
  FileWatch watch(path);
  Write(path, "ab");
  watch.SetKnown();
  EXPECT_FALSE(watch.Changed());
  EXPECT_FALSE(watch.Changed());
}

TEST(FileWatch, TakesAMissingFileForNoChange) {
  const testing::TempDir dir;
  const std::string path = dir.File("g.yaml");
  Write(path, "a");
  FileWatch watch(path);
  std::filesystem::remove(path);
  EXPECT_FALSE(watch.Changed());
  EXPECT_FALSE(watch.Changed());
  Write(path, "abcd");
  EXPECT_FALSE(watch.Changed());
  EXPECT_TRUE(watch.Changed()) << "it is back, with another content";
  FileWatch none("");
  EXPECT_FALSE(none.Changed());
}

}  // namespace
}  // namespace gyrostat::service
