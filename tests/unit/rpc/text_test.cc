#include "rpc/text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gyrostat::rpc {
namespace {

TEST(Quoted, ShowsThatItWasCut) {
  EXPECT_EQ(Quoted("run"), "\"run\"");
  EXPECT_EQ(Quoted(std::string(70, 'x')), "\"" + std::string(64, 'x') + "…\"");
}

TEST(NumberText, IsShort) {
  EXPECT_EQ(NumberText(0.1), "0.1");
  EXPECT_EQ(NumberText(1e300), "1e+300");
  EXPECT_EQ(NumberText(NAN), "nan");
}

}  // namespace
}  // namespace gyrostat::rpc
