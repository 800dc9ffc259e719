#include "ctl/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace gyrostat::ctl {
namespace {

using ::testing::Contains;

// Twenty steps of a loss of 2, then these.
std::unique_ptr<Judge> Judged(std::string_view rules, const std::vector<double>& losses) {
  auto judge = MakeJudge(rules, {}, {}, {});
  judge->OnAttempt();
  model::Report report;
  for (size_t i = 0; i < 20 + losses.size(); ++i) {
    report.step = report.sequence = i + 1;
    report.boundary = i + 1;
    report.SetScalar(model::Signal::kLoss, i < 20 ? 2 : losses[i - 20]);
    judge->OnReport(report);
  }
  return judge;
}

TEST(Judge, EveryNameMakesAJudgeOfThatName) {
  EXPECT_THAT(std::vector(RuleNames().begin(), RuleNames().end()), Contains("olmo-core"));
  EXPECT_EQ(RuleNames().front(), "gyrostat");
  for (const std::string_view name : RuleNames()) EXPECT_EQ(MakeJudge(name, {}, {}, {})->rules(), name);
}

TEST(Judge, ARivalsFindingIsKeptAsItWasLastSaid) {
  const auto judge = Judged("lightning", {7, 7, 2, 2});
  const std::vector<model::Finding> findings = judge->Findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].detector, "lightning");
  EXPECT_EQ(findings[0].step_detected, 21);
  EXPECT_EQ(findings[0].step_end, 22);
}

TEST(Judge, ANewAttemptEndsWhatARivalHasOpen) {
  const auto judge = Judged("lightning", {std::numeric_limits<double>::quiet_NaN()});
  EXPECT_FALSE(judge->Findings()[0].step_end.has_value());
  judge->OnAttempt();
  EXPECT_EQ(judge->Findings()[0].step_end, 21);
}

}  // namespace
}  // namespace gyrostat::ctl
