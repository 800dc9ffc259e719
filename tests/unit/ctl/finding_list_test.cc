#include "ctl/finding_list.h"

#include <gtest/gtest.h>

namespace gyrostat::ctl {
namespace {

using model::Severity;
using model::Signal;

class FindingList : public ::testing::Test {
 protected:
  void Add(Severity severity, Signal signal, model::Step begin, std::optional<model::Step> end = std::nullopt) {
    RuledFinding each;
    each.rules = "gyrostat";
    each.finding.detector = "d<" + std::to_string(run.findings.size());
    each.finding.severity = severity;
    each.finding.signal = signal;
    each.finding.step_begin = begin;
    each.finding.step_end = end;
    each.finding.message = "<i>message</i>";
    run.findings.push_back(each);
  }
  static size_t Occurrences(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
  }

  FindingList() { run.curves[Signal::kLoss].Add(0, 1); }
  Replayed run;
  StepAxis steps{0, 1000};
};

TEST_F(FindingList, NumbersTheWorstAndEarliestFirst) {
  Add(Severity::kInfo, Signal::kLoss, 1);
  Add(Severity::kWarning, Signal::kSpikeScoreLoss, 50);
  Add(Severity::kCritical, Signal::kGradNorm, 90);
  Add(Severity::kWarning, Signal::kLoss, 20);
  const auto all = NumberedFindings(run, "r0");
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].ruled->finding.step_begin, 90);
  EXPECT_EQ(all[1].ruled->finding.step_begin, 20);
  EXPECT_EQ(all[2].drawn, Signal::kLoss) << "a spike score belongs to its curve";
  EXPECT_EQ(all[0].drawn, Signal::kNone) << "there is no such curve";
  EXPECT_EQ(all[0].figure, "r0-loss");
  EXPECT_EQ(all[3].anchor, "r0-f4");
  run.findings[2].rules = "zclip";
  EXPECT_EQ(NumberedFindings(run, "r0").back().ruled->rules, "zclip") << "other tools' come last, however bad";
}

TEST_F(FindingList, RowsEscapeEscapedAndFoldInformationAway) {
  Add(Severity::kCritical, Signal::kLoss, 3, 7);
  for (int i = 0; i < 5; ++i) Add(Severity::kInfo, Signal::kLoss, i);
  const std::string rows = FindingRows(NumberedFindings(run, "r0"), steps);
  EXPECT_EQ(Occurrences(rows, "<tr id="), 6u);
  EXPECT_EQ(rows.find("<i>"), std::string::npos);
  EXPECT_NE(rows.find("<summary>5 for information</summary>"), std::string::npos);
  EXPECT_NE(rows.find("data-step=\"7\""), std::string::npos);
  run.findings.pop_back();
  EXPECT_EQ(FindingRows(NumberedFindings(run, "r0"), steps).find("<details>"), std::string::npos) << "four are few";
}

TEST_F(FindingList, PinsThatWouldHideEachOtherBecomeOne) {
  for (const model::Step step : {100, 101, 139, 141, 500}) Add(Severity::kWarning, Signal::kLoss, step);
  run.findings[1].finding.severity = Severity::kCritical;
  const std::string lane = PinLane(NumberedFindings(run, "r0"), steps);
  EXPECT_EQ(Occurrences(lane, "<a "), 3u) << "100 to 139; 141; 500";
  EXPECT_NE(lane.find("pin critical\" href=\"#r0-f1\""), std::string::npos) << "the worst one speaks for them";
  EXPECT_NE(lane.find("; and 2 more here"), std::string::npos);
}

TEST_F(FindingList, ThousandsAreCountedNotShown) {
  for (int i = 0; i < 5000; ++i) Add(Severity::kWarning, Signal::kLoss, i, i);
  const auto all = NumberedFindings(run, "r0");
  const std::string rows = FindingRows(all, steps);
  EXPECT_EQ(Occurrences(rows, "<tr id="), 400u);
  EXPECT_NE(rows.find("And 4600 findings more"), std::string::npos);
  EXPECT_LE(Occurrences(PinLane(all, steps), "<a "), 25u);
}

}  // namespace
}  // namespace gyrostat::ctl
