// A reload of thresholds reaches a running run at its next report, and blinds nothing whose windows stay.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/run.h"
#include "support/scripted_job.h"

namespace gyrostat::engine {
namespace {

using model::Severity;
using model::Signal;
using testing::IdOf;
using testing::PlainHello;
using testing::PlainReport;

class Reload : public ::testing::Test {
 protected:
  Reload() { Say(HelloEvent{PlainHello("run", IdOf(1))}); }

  const RunOutput& Say(EventBody body) {
    run_.Apply({{now_ms_, now_ms_}, std::move(body)}, &out_);
    return out_;
  }
  // What is said of a report with this loss.
  std::vector<model::Finding> Loss(double loss) {
    model::Report report = PlainReport(++sequence_);
    report.SetScalar(Signal::kLoss, loss);
    now_ms_ += 100;
    return Say(ReportEvent{IdOf(1), report}).findings;
  }
  void Quiet(int reports) {
    for (int i = 0; i < reports; ++i) EXPECT_TRUE(Loss(i % 2 == 0 ? 2.02 : 1.98).empty()) << i;
  }
  detect::Voice& VoiceOf(std::string_view name) { return options_.detect.voices[detect::DetectorIndex(name)]; }

  RunOptions options_ = testing::ScriptedOptions();
  engine::Run run_{"run", 4, options_};
  RunOutput out_;
  int64_t now_ms_ = 0;
  uint64_t sequence_ = 0;
};

TEST_F(Reload, AChangedThresholdAppliesAndTheBaselineStays) {
  Quiet(100);
  options_.detect.loss_spike.enter_sigmas = 100;
  options_.detect.loss_spike.gross_ratio = 1000;
  Say(OptionsEvent{options_});
  EXPECT_TRUE(Loss(2.6).empty()) << "the higher threshold";
  Quiet(10);
  options_ = testing::ScriptedOptions();
  Say(OptionsEvent{options_});
  const auto found = Loss(2.6);
  ASSERT_EQ(found.size(), 1u) << "at once: the baseline was never lost";
  EXPECT_EQ(found[0].detector, "loss_spike");
  EXPECT_NEAR(found[0].expected, 2, 0.05);
}

TEST_F(Reload, AChangedWindowStartsThatDetectorAnewAndEndsWhatItHadOpen) {
  Quiet(100);
  ASSERT_EQ(Loss(3).size(), 1u);
  options_.detect.loss_spike.window_steps = 64;
  Say(OptionsEvent{options_});
  ASSERT_EQ(out_.findings.size(), 1u);
  EXPECT_TRUE(out_.findings[0].step_end.has_value());
  EXPECT_TRUE(Loss(3).empty()) << "it knows nothing yet";
}

TEST_F(Reload, ADetectorThatIsSwitchedOffEndsWhatItHadOpenAndSaysNothing) {
  Quiet(100);
  const auto begun = Loss(3);
  ASSERT_EQ(begun.size(), 1u);
  VoiceOf("loss_spike").enabled = false;
  Say(OptionsEvent{options_});
  ASSERT_EQ(out_.findings.size(), 1u);
  EXPECT_EQ(out_.findings[0].id, begun[0].id);
  EXPECT_TRUE(out_.findings[0].step_end.has_value());
  EXPECT_TRUE(run_.View().open_findings.empty());
  Quiet(100);
  EXPECT_TRUE(Loss(3).empty());
  Quiet(100);
  VoiceOf("loss_spike").enabled = true;
  Say(OptionsEvent{options_});
  Quiet(100);
  EXPECT_EQ(Loss(3).size(), 1u);
}

TEST_F(Reload, ACapIsTheSeverestThatIsSaid) {
  Quiet(10);
  VoiceOf("nonfinite").severity_max = Severity::kInfo;
  Say(OptionsEvent{options_});
  for (int i = 0; i < 5; ++i)
    for (const model::Finding& each : Loss(NAN)) {
      EXPECT_EQ(each.detector, "nonfinite");
      EXPECT_EQ(each.severity, Severity::kInfo) << i;
    }
  const auto open = run_.View().open_findings;
  EXPECT_EQ(std::count_if(open.begin(), open.end(), [](const auto& each) { return each.detector == "nonfinite"; }), 1);
  VoiceOf("nonfinite").severity_max = Severity::kCritical;
  Say(OptionsEvent{options_});
  for (int i = 0; i < 3; ++i) Loss(2);
  Severity worst = Severity::kInfo;
  for (int i = 0; i < 5; ++i)
    for (const model::Finding& each : Loss(NAN)) worst = std::max(worst, each.severity);
  EXPECT_EQ(worst, Severity::kCritical);
}

// The same run with each report followed by a reload of the same thresholds, and without.
TEST_F(Reload, ToTheSameThresholdsChangesNoWord) {
  engine::Run straight("run", 4, options_), reloaded("run", 4, options_);
  RunOutput a, b, ignored;
  const auto apply = [&](EventBody body) {
    const Event event{{now_ms_ += 100, now_ms_}, std::move(body)};
    straight.Apply(event, &a);
    reloaded.Apply(event, &b);
  };
  apply(HelloEvent{PlainHello("run", IdOf(1))});
  size_t said = 0;
  for (uint64_t n = 1; n <= 300; ++n) {
    model::Report report = PlainReport(n);
    report.SetScalar(Signal::kLoss, n % 50 == 49 ? 4 : n % 71 == 0 ? NAN : 2 + 0.01 * static_cast<double>(n % 3));
    apply(ReportEvent{IdOf(1), report});
    base::ByteWriter x, y;
    base::SaveTo(&x, a.findings);
    base::SaveTo(&y, b.findings);
    ASSERT_EQ(x.bytes(), y.bytes()) << n;
    said += a.findings.size();
    reloaded.Apply({{now_ms_, now_ms_}, OptionsEvent{options_}}, &ignored);
  }
  EXPECT_GT(said, 10u);
}

TEST_F(Reload, SilenceCanBeSwitchedOffAndCapped) {
  Quiet(20);
  VoiceOf("silence").enabled = false;
  Say(OptionsEvent{options_});
  now_ms_ += 1'000'000;
  EXPECT_TRUE(Say(TickEvent{}).findings.empty());
  EXPECT_EQ(run_.View().life, RunLife::kSilent) << "it is silent all the same";
  EXPECT_TRUE(Loss(2).empty());
  VoiceOf("silence") = {.enabled = true, .severity_max = Severity::kInfo};
  Say(OptionsEvent{options_});
  Quiet(20);
  now_ms_ += 1'000'000;
  ASSERT_EQ(Say(TickEvent{}).findings.size(), 1u);
  EXPECT_EQ(out_.findings[0].severity, Severity::kInfo);
  VoiceOf("silence").enabled = false;
  Say(OptionsEvent{options_});
  ASSERT_EQ(out_.findings.size(), 1u);
  EXPECT_TRUE(out_.findings[0].step_end.has_value());
}

}  // namespace
}  // namespace gyrostat::engine
