#include "ctl/check_config.h"

#include <gtest/gtest.h>

#include <sstream>

namespace gyrostat::ctl {
namespace {

struct Result {
  int code = 0;
  std::string out, err;
};

Result Check(const absl::Status& answer, bool json) {
  Request request;
  request.file = "g.yaml";
  request.json = json;
  std::ostringstream out, err;
  const Console console{out, err, base::SystemClock(), {}, false, [] { return Size(); }};
  const int code = CheckConfig(request, console, [&](const std::string& file) {
    EXPECT_EQ(file, "g.yaml");
    return answer;
  });
  return {code, out.str(), err.str()};
}

TEST(CheckConfig, AGoodFileIsExitCode0) {
  EXPECT_EQ(Check(absl::OkStatus(), false).out, "g.yaml is a good configuration.\n");
  EXPECT_EQ(Check(absl::OkStatus(), true).out, R"({"file":"g.yaml","valid":true,"errors":[]})"
                                               "\n");
  EXPECT_EQ(Check(absl::OkStatus(), true).code, kDone);
}

TEST(CheckConfig, EachProblemIsALineAndOneErrorOfTheObject) {
  const auto bad = absl::InvalidArgumentError("g.yaml:3: a: saw 1\ng.yaml:9: b: saw \x1b");
  const Result text = Check(bad, false);
  EXPECT_EQ(text.code, kRefused);
  EXPECT_EQ(text.out, "");
  EXPECT_EQ(text.err, "g.yaml:3: a: saw 1\ng.yaml:9: b: saw \\x1b\n");
  const Result json = Check(bad, true);
  EXPECT_EQ(json.code, kRefused);
  EXPECT_EQ(json.out, R"({"file":"g.yaml","valid":false,"errors":["g.yaml:3: a: saw 1","g.yaml:9: b: saw \u001b"]})"
                      "\n");
}

TEST(CheckConfig, ARefusalWithoutWordsStillSaysSomething) {
  EXPECT_EQ(Check(absl::NotFoundError(""), false).err, "g.yaml: NOT_FOUND: \n");
}

}  // namespace
}  // namespace gyrostat::ctl
