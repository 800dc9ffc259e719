#include "service/front_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gyrostat::service {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<std::shared_ptr<const engine::RunState>> Runs(int n) {
  std::vector<std::shared_ptr<const engine::RunState>> runs;
  for (int i = 0; i < n; ++i) {
    engine::RunState run;
    run.run = "run-" + std::to_string(i);
    run.step = 7;
    runs.push_back(std::make_shared<const engine::RunState>(run));
  }
  return runs;
}

TEST(FrontPage, SaysWhereToLook) {
  const std::string page = FrontPage("1.2.3", "", Runs(1), true);
  for (const char* text : {"gyrostatd 1.2.3\n", "\nready\n", "/metrics", "/healthz", "/readyz", "gyrostatctl runs",
                           "\n1 run\n  run-0  live  step 7  observe  open findings 0\n"})
    EXPECT_THAT(page, HasSubstr(text));
}

TEST(FrontPage, SaysWhyTheDaemonIsNotReady) {
  EXPECT_THAT(FrontPage("1", "journal: disk full", Runs(0), true), HasSubstr("\nnot ready: journal: disk full\n"));
}

TEST(FrontPage, ShowsAPageOfRunsAtMost) {
  const std::string page = FrontPage("1", "", Runs(51), false);
  EXPECT_THAT(page, HasSubstr("51 runs\n"));
  EXPECT_THAT(page, HasSubstr("run-49 "));
  EXPECT_THAT(page, Not(HasSubstr("run-50 ")));
  EXPECT_THAT(page, HasSubstr("gyrostatctl runs shows all"));
}

TEST(FrontPage, SaysHowToGetThePageWhereItWasNotBuilt) {
  EXPECT_THAT(FrontPage("1", "", Runs(0), false), HasSubstr("nodejs and npm (deploy/install page)"));
  EXPECT_THAT(FrontPage("1", "", Runs(0), true), Not(HasSubstr("npm")));
}

}  // namespace
}  // namespace gyrostat::service
