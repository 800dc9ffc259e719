#include "base/archive.h"

#include <gtest/gtest.h>

#include <map>

namespace gyrostat::base {
namespace {

struct Inner {
  int32_t number = 0;
  std::optional<double> maybe;
  template <class Archive>
  void Fields(Archive& a) { a(number, maybe); }
  bool operator==(const Inner&) const = default;
};

struct Outer {
  std::string text;
  std::vector<Inner> inners;
  std::vector<float> floats;
  std::map<std::string, uint64_t> counts;
  template <class Archive>
  void Fields(Archive& a) { a(text, inners, floats, counts); }
  bool operator==(const Outer&) const = default;
};

const Outer kSample{"a\0b", {{-5, 2.5}, {7, std::nullopt}}, {1.f, -0.f, 3e38f}, {{"x", 1}, {"y", 1ull << 60}}};

TEST(Archive, BringsBackWhatWasSaved) {
  ByteWriter out;
  SaveTo(&out, kSample);
  ByteReader in(out.bytes());
  Outer back;
  ASSERT_TRUE(LoadFrom(&in, &back));
  EXPECT_EQ(back, kSample);
  EXPECT_TRUE(in.AtEnd());
}

TEST(Archive, RefusesEveryTruncation) {
  ByteWriter out;
  SaveTo(&out, kSample);
  for (size_t size = 0; size < out.bytes().size(); ++size) {
    ByteReader in(std::string_view(out.bytes()).substr(0, size));
    Outer back;
    EXPECT_FALSE(LoadFrom(&in, &back)) << "at " << size;
  }
}

TEST(Archive, SurvivesAHugeCount) {
  ByteWriter out;
  out.Put(uint32_t{0xffffffff});
  ByteReader in(out.bytes());
  std::vector<Inner> inners;
  EXPECT_FALSE(LoadFrom(&in, &inners));
  EXPECT_LE(inners.size(), 1u);
}

}  // namespace
}  // namespace gyrostat::base
