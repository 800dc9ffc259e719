#include "config/yaml_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gyrostat::config {
namespace {

TEST(YamlReader, FlattensMapsAndLists) {
  const YamlContent content = ReadYaml("a:\n  b: 1\n  c: [x, 'y z']\nd: ~\n");
  EXPECT_TRUE(content.complaints.empty());
  ASSERT_EQ(content.entries.size(), 4u);
  EXPECT_EQ(content.entries[0].path, "a");
  EXPECT_EQ(content.entries[0].kind, Entry::Kind::kMap);
  EXPECT_EQ(content.entries[1].path, "a.b");
  EXPECT_EQ(content.entries[1].text, "1");
  EXPECT_EQ(content.entries[1].line, 2);
  EXPECT_EQ(content.entries[2].path, "a.c");
  EXPECT_THAT(content.entries[2].items, testing::ElementsAre("x", "y z"));
  EXPECT_EQ(content.entries[3].kind, Entry::Kind::kNull);
}

TEST(YamlReader, NumbersMapsInAList) {
  const YamlContent content = ReadYaml("w:\n  - a: 1\n    b: [x]\n  - a: 2\nc: 3\n");
  EXPECT_TRUE(content.complaints.empty());
  std::vector<std::string> paths;
  for (const Entry& each : content.entries) paths.push_back(each.path);
  EXPECT_THAT(paths, testing::ElementsAre("w", "w[0]", "w[0].a", "w[0].b", "w[1]", "w[1].a", "c"));
  EXPECT_EQ(content.entries[0].kind, Entry::Kind::kMapList);
  EXPECT_EQ(content.entries[1].kind, Entry::Kind::kMap);
  EXPECT_EQ(content.entries[4].line, 4);
  EXPECT_EQ(content.entries[3].items.size(), 1u);
}

TEST(YamlReader, RefusesKeysThatAreNoWords) {
  const YamlContent content = ReadYaml("? [a, b]\n: 1\nc: 2\n");
  ASSERT_EQ(content.complaints.size(), 1u);
  EXPECT_EQ(content.complaints[0].text, "a key must be a plain word");
}

// Whatever comes in, an answer comes out: quickly, and not larger than its bounds.
TEST(YamlReader, AnswersHostileText) {
  std::string bomb = "a0: &a0 x\n";
  for (int i = 1; i < 30; ++i) {
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 9; ++j) bomb += (j > 0 ? ", *a" : "*a") + std::to_string(i - 1);
    bomb += "]\n";
  }
  const std::string deep(20000, '['), deep_maps(20000, '{'), dashes = std::string(20000, '-') + " x";
  std::string indented;
  for (int i = 0; i < 600; ++i) indented += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  std::vector<std::string> texts = {bomb, deep, deep_maps, dashes, indented, std::string("\0\x01\xff\xfe", 4)};
  for (const char* text : {"\t- a", "%YAML 9.9\n---\na: 1", "!<x> {a: !!binary 1}", "a: |\n", "\"unterminated", "&a",
                           "*a", "? ? ? ?", "- - - -", "a: b: c", "a: [}",
                           "\xef\xbb\xbf"
                           "a: 1"})
    texts.push_back(text);
  for (const std::string& text : texts) {
    const YamlContent content = ReadYaml(text);
    EXPECT_LE(content.complaints.size(), 51u);
    EXPECT_LE(content.entries.size(), 1000u);
  }
  EXPECT_FALSE(ReadYaml(bomb).complaints.empty());
  EXPECT_FALSE(ReadYaml(deep).complaints.empty());
}

}  // namespace
}  // namespace gyrostat::config
