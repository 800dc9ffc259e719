#include "ctl/spec_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gyrostat::ctl {
namespace {

using ::testing::HasSubstr;

TEST(SpecFile, APresetIsKnownByName) {
  const auto spec = ReadModel("gpt2");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->preset, "gpt2");
  EXPECT_EQ(spec->norm_placement, model::NormPlacement::kPre);
}

TEST(SpecFile, WhatIsNeitherIsToldWithThePresets) {
  const auto spec = ReadModel("no-such-model");
  ASSERT_FALSE(spec.ok());
  EXPECT_THAT(spec.status().message(), HasSubstr("no-such-model: "));
  EXPECT_THAT(spec.status().message(), HasSubstr("wanted a file or one of gpt2, "));
}

}  // namespace
}  // namespace gyrostat::ctl
