#include "ctl/assets.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "support/paths.h"

namespace gyrostat::ctl {
namespace {

std::string File(const std::string& name) {
  std::ifstream in(std::string(testing::kSourceDir) + "/daemon/ctl/assets/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Assets, AreTheFilesByteForByte) {
  ASSERT_FALSE(File("report.css").empty());
  EXPECT_EQ(kReportCss.bytes, File("report.css"));
  EXPECT_EQ(kReportJs.bytes, File("report.js"));
}

// That the hash is right, the browser of tests/e2e/report_page_test.py says: it would run nothing.
TEST(Assets, AreNamedByAHash) {
  for (const base::Asset& each : {kReportCss, kReportJs}) {
    EXPECT_EQ(each.csp_hash.substr(0, 7), "sha256-");
    EXPECT_EQ(each.csp_hash.size(), 7u + 44);
    EXPECT_EQ(each.csp_hash.back(), '=');
  }
}

TEST(Assets, EndNoElementOfThePageThatHoldsThem) {
  EXPECT_EQ(kReportCss.bytes.find("</"), std::string_view::npos);
  EXPECT_EQ(kReportJs.bytes.find("</"), std::string_view::npos);
}

}  // namespace
}  // namespace gyrostat::ctl
