#include "ctl/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "detect/catalog.h"

namespace gyrostat::ctl {
namespace {

using ::testing::ElementsAreArray;

model::Report At(model::Step step, double loss) {
  model::Report report;
  report.sequence = report.boundary = static_cast<uint64_t>(step) + 1;
  report.step = step;
  report.SetScalar(model::Signal::kLoss, loss);
  report.SetScalar(model::Signal::kGradNorm, 1 + 0.1 * std::sin(static_cast<double>(step)));
  return report;
}

// A noisy level of 2.5 nats for `steps`, with one value of 9 at `spike`.
void Feed(Judge* judge, model::Step steps, model::Step spike) {
  judge->OnAttempt();
  for (model::Step step = 0; step < steps; ++step)
    judge->OnReport(At(step, step == spike ? 9 : 2.5 + 0.05 * std::cos(1.7 * static_cast<double>(step))));
}

TEST(Judge, EveryRuleSetOfTheCatalogueJudges) {
  const std::vector<std::string_view> names = detect::RuleSetNames();
  EXPECT_THAT(RuleNames(), ElementsAreArray(names));
  for (const std::string_view rules : RuleNames()) {
    const auto judge = MakeJudge(rules, {}, {});
    EXPECT_EQ(judge->rules(), rules);
    Feed(judge.get(), 300, 300);
    EXPECT_TRUE(judge->Findings().empty()) << rules;
  }
}

TEST(Judge, ARivalsFindingIsKeptAsItWasLastSaid) {
  const auto judge = MakeJudge("olmo-core", {}, {});
  Feed(judge.get(), 300, 250);
  const std::vector<model::Finding> findings = judge->Findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].step_begin, 250);
  EXPECT_EQ(findings[0].signal, model::Signal::kLoss);
  EXPECT_TRUE(findings[0].step_end.has_value());
}

TEST(Judge, ASecondAttemptIsToldToARival) {
  // 128 values of the new attempt are wanted before olmo-core says anything: the break reached it.
  const auto judge = MakeJudge("olmo-core", {}, {});
  Feed(judge.get(), 300, 300);
  Feed(judge.get(), 100, 90);
  EXPECT_TRUE(judge->Findings().empty());
  Feed(judge.get(), 200, 190);
  EXPECT_EQ(judge->Findings().size(), 1u);
}

}  // namespace
}  // namespace gyrostat::ctl
