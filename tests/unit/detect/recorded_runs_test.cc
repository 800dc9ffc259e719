// Real training runs, labelled by their README: healthy ones raise nothing above info, failing ones are found in time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>

#include "detect/catalog.h"
#include "support/recorded_run.h"

namespace gyrostat::detect {
namespace {

std::vector<model::Finding> Judge(const testing::RecordedRun& run) {
  std::vector<model::Finding> said;
  for (const auto& detector : MakeDetectors(DetectOptions(), run.spec))
    for (const model::Report& report : run.reports) detector->Observe(report, &said);
  return said;
}

class RecordedRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("GYROSTAT_RUNS");
    if (folder == nullptr) GTEST_SKIP() << "GYROSTAT_RUNS is not set: no recorded runs to judge";
    folder_ = folder;
  }
  testing::RecordedRun Read(const std::string& name) {
    std::string error;
    testing::RecordedRun run = testing::ReadRecordedRun(folder_ + "/" + name + ".jsonl.gz", &error);
    EXPECT_EQ(error, "");
    return run;
  }
  // The most severe finding of each detector.
  std::map<std::string, model::Finding> Worst(const std::string& name) {
    std::map<std::string, model::Finding> worst;
    for (const model::Finding& finding : Judge(Read(name))) {
      const auto [at, fresh] = worst.emplace(finding.detector, finding);
      if (!fresh && finding.severity > at->second.severity) at->second = finding;
    }
    return worst;
  }
  std::string folder_;
};

TEST_F(RecordedRuns, HealthyRunsRaiseNothingAboveInfo) {
  int runs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string file = entry.path().filename();
    const std::string name = file.substr(0, file.find(".jsonl"));
    if (name.rfind("s6_", 0) != 0 && name.rfind("s2_base.w300", 0) != 0) continue;
    ++runs;
    for (const model::Finding& finding : Judge(Read(name)))
      EXPECT_EQ(finding.severity, model::Severity::kInfo) << name << ": " << finding.detector << " " << finding.message;
  }
  EXPECT_GE(runs, 20);
}

TEST_F(RecordedRuns, AttentionRunawaysAreFoundWhenTheyPassTau) {
  const std::map<std::string, std::pair<model::Step, model::Step>> expected = {
      {"s1m_delay_s0.none", {93, 99}}, {"s1m_long.none_s0", {93, 99}}, {"s1_gqa.none", {40, 60}},
      {"s1c_qkx.x30", {40, 70}},       {"s7b_ramp.s0", {175, 192}}};
  for (const auto& [name, range] : expected) {
    const auto worst = Worst(name);
    ASSERT_TRUE(worst.count("attn_logit")) << name;
    const model::Finding& finding = worst.at("attn_logit");
    EXPECT_EQ(finding.severity, model::Severity::kCritical) << name;
    EXPECT_GE(finding.step_begin, range.first) << name;
    EXPECT_LE(finding.step_begin, range.second) << name;
    EXPECT_EQ(finding.recommend, model::InterventionKind::kQkClip) << name;
  }
}

TEST_F(RecordedRuns, AClippedRunStaysBelowTau) {
  const auto worst = Worst("s1m_delay_s0.abs_D2");
  for (const auto& [detector, finding] : worst) EXPECT_EQ(finding.severity, model::Severity::kInfo) << detector;
}

TEST_F(RecordedRuns, OneBadBatchIsAtMostAWarningAndHeals) {
  for (const std::string name : {"s5_bad.random1", "s5_bad.shuffle1", "s5_bad.repeat1", "s5_bad.random10"}) {
    std::map<std::pair<std::string, uint64_t>, model::Finding> last;
    for (const model::Finding& finding : Judge(Read(name))) last[{finding.detector, finding.key}] = finding;
    for (const auto& [key, finding] : last) {
      EXPECT_LE(finding.severity, model::Severity::kWarning) << name << ": " << finding.message;
      if (finding.detector.find("spike") == std::string::npos) continue;
      EXPECT_EQ(finding.healed, true) << name << ": " << finding.message;
      EXPECT_GE(finding.step_begin, 250) << name << ": " << finding.message;
    }
  }
}

TEST_F(RecordedRuns, ADataIncidentOfTenBatchesIsAWarning) {
  EXPECT_EQ(Worst("s5_bad.random10").at("loss_spike").severity, model::Severity::kWarning);
  EXPECT_EQ(Worst("s5_bad.random10").at("loss_spike").step_begin, 250);
}

// experiments.md §3: the ratio passes its limit at 10-11 (warm-up 20), 16-19 (60), 18-23 (12 layers); the loss shows
// it 90 to 120 steps later.
TEST_F(RecordedRuns, PostNormCollapsesAreFoundDuringTheWarmup) {
  const std::map<std::string, model::Step> expected = {
      {"s2_base.w20_s0", 11}, {"s2_base.w20_s1", 12}, {"s2_auto.base_s2", 19}, {"s3_deep12.post_s0", 23}};
  for (const auto& [name, latest] : expected) {
    const std::vector<model::Finding> said = Judge(Read(name));
    const auto first = std::find_if(said.begin(), said.end(), [](const model::Finding& f) {
      return f.detector == "grad_profile" && f.recommend == model::InterventionKind::kWarmupExtension;
    });
    ASSERT_NE(first, said.end()) << name;
    EXPECT_LE(first->step_detected, latest) << name;
    EXPECT_EQ(Worst(name).at("grad_profile").severity, model::Severity::kCritical) << name;
    EXPECT_EQ(Worst(name).at("warmup").severity, model::Severity::kWarning) << name;
  }
}

TEST_F(RecordedRuns, OverflowsAreWarnedOfEightyStepsBefore) {
  for (const auto& [name, overflow] : {std::pair{"s8_llama.none_s0", 189}, std::pair{"s8_fp16.lr.16_s0", 258}}) {
    const model::Finding finding = Worst(name).at("headroom");
    EXPECT_EQ(finding.severity, model::Severity::kCritical) << name;
    EXPECT_LE(finding.step_detected, overflow - 80) << name;
    EXPECT_EQ(finding.layer, 3u) << name;
    EXPECT_EQ(finding.recommend, model::InterventionKind::kLrScale) << name;
  }
}

TEST_F(RecordedRuns, ARampThatNeverEndsIsSeenInTheLossWhileTheRateRises) {
  EXPECT_EQ(Worst("s7b_ramp.s0").at("warmup").recommend, model::InterventionKind::kLrScale);
}

TEST_F(RecordedRuns, AnOverflowToNanIsCriticalAndNamesTheStream) {
  for (const auto& [name, step] : {std::pair{"s8_llama.none_s0", 189}, std::pair{"s8_fp16.lr.16_s0", 258}}) {
    const model::Finding finding = Worst(name).at("nonfinite");
    EXPECT_EQ(finding.severity, model::Severity::kCritical) << name;
    EXPECT_NEAR(static_cast<double>(finding.step_begin), step, 1) << name;
    EXPECT_EQ(finding.signal, model::Signal::kHiddenAbsmax) << name;
  }
}

}  // namespace
}  // namespace gyrostat::detect
