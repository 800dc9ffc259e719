#include "detect/catalog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "support/lcg.h"

namespace gyrostat::detect {
namespace {

using model::Signal;

model::ModelSpec Spec() {
  model::ModelSpec spec;
  spec.layers = 2;
  spec.heads = 2;
  spec.hidden_size = 64;
  spec.optimizer = "adamw";
  spec.compute_dtype = "bf16";
  return spec;
}

// What the detectors of optional signals speak of.
void AddOptionalSignals(int step, testing::Lcg* random, model::Report* r) {
  r->SetScalar(Signal::kLogZ, (step < 60 ? 1 : 9) + 0.1 * random->Normal());
  r->SetScalar(Signal::kLossScale, std::exp2(16 - std::clamp((step - 60) / 5, 0, 6)));
  r->SetScalar(Signal::kLearningRate, step % 23 == 0 ? 0 : 1e-3);
  const auto rough = static_cast<float>(std::exp(step > 30 && step % 2 == 0 ? 2 : 0));
  r->MutableArray(Signal::kLayerGradNorm) = {rough, step >= 100 && step < 190 ? 1e-7f : 1.f};
  const auto jump = static_cast<float>(step % 60 == 59 ? 1e-2 : 3e-4);
  const auto update = static_cast<float>(3e-4 * (1 + 0.1 * random->Uniform()));
  r->MutableArray(Signal::kUpdateRms) = {jump, step == 130 ? NAN : update};
  r->MutableArray(Signal::kAttnEntropy) = {2, 2, step == 80 ? -1.f : 2.f, step < 70 ? 2.f : 0.01f};
}

// A run with everything in it: noise, spikes, NaN, -1, missing signals, growing logits, clips, holes in the sequence.
std::vector<model::Report> EventfulRun(int steps) {
  testing::Lcg random(17);
  std::vector<model::Report> reports;
  for (int step = 0; step < steps; ++step) {
    model::Report& r = reports.emplace_back();
    r.step = r.sequence = static_cast<uint64_t>(step) + (step > 180 ? 3 : 1);
    r.attn_logit_kind = model::LogitKind::kExact;
    r.ledger_version = step > 150 ? static_cast<uint64_t>(step / 4) : 0;
    double loss = 3 - 0.003 * step + 0.02 * random.Normal() + 0.08 * std::max(0, step - 230);
    if (step % 61 == 60) loss *= 1 + random.Uniform();
    if (step >= 120 && step < 124) loss = NAN;
    if (step % 17 != 3) r.SetScalar(Signal::kLoss, loss);
    const double creep = step > 140 ? 1.6 : 0;
    r.SetScalar(Signal::kGradNorm,
                step % 40 == 5 ? -1 : std::exp(0.2 * random.Normal() + creep + (step % 70 == 69 ? 3 : 0)));
    r.SetScalar(Signal::kSpikeScoreLoss, step == 100 ? 1 : 0);
    const auto top = static_cast<float>(20 * std::exp(0.02 * std::min(step, 140)));
    r.MutableArray(Signal::kAttnLogitMax) = {5, top, step % 9 == 0 ? NAN : 7.f, model::kAbsent};
    r.MutableArray(Signal::kHiddenAbsmax) = {1, 2, step == 90 ? INFINITY : 3.f};
    AddOptionalSignals(step, &random, &r);
  }
  return reports;
}

std::string Bytes(const std::vector<model::Finding>& findings) {
  base::ByteWriter out;
  base::SaveTo(&out, findings);
  return out.Take();
}

TEST(Catalog, NamesEveryDetectorOnceAndSilenceToo) {
  std::set<std::string_view> names;
  for (const auto& detector : MakeDetectors(DetectOptions(), Spec()))
    EXPECT_TRUE(names.insert(detector->name()).second);
  names.insert("silence");
  const std::vector<std::string_view> listed = DetectorNames();
  EXPECT_EQ(names, std::set<std::string_view>(listed.begin(), listed.end()));
  EXPECT_EQ(listed.size(), names.size());
}

class RuleSet : public ::testing::TestWithParam<std::string_view> {
 protected:
  static std::vector<std::unique_ptr<Detector>> Make() { return MakeRuleSet(GetParam(), DetectOptions(), Spec()); }
};

TEST_P(RuleSet, SavedAndLoadedAtEachStepTheFindingsAreTheSameBitForBit) {
  const std::vector<model::Report> run = EventfulRun(260);
  auto whole = Make(), broken = Make();
  std::set<std::string> heard;
  for (const model::Report& report : run) {
    for (size_t i = 0; i < whole.size(); ++i) {
      if (report.step == 200) {
        std::vector<model::Finding> ends_a, ends_b;
        whole[i]->OnBreak(Break::kNewEpoch, report.step, &ends_a);
        broken[i]->OnBreak(Break::kNewEpoch, report.step, &ends_b);
        ASSERT_EQ(Bytes(ends_a), Bytes(ends_b));
      }
      base::ByteWriter saved;
      broken[i]->Save(&saved);
      broken[i] = std::move(Make()[i]);
      base::ByteReader in(saved.bytes());
      ASSERT_TRUE(broken[i]->Load(&in)) << broken[i]->name() << " at " << report.step;
      ASSERT_TRUE(in.AtEnd());
      std::vector<model::Finding> a, b;
      whole[i]->Observe(report, &a);
      broken[i]->Observe(report, &b);
      ASSERT_EQ(Bytes(a), Bytes(b)) << whole[i]->name() << " at " << report.step;
      for (const model::Finding& finding : a) heard.insert(finding.detector);
    }
  }
  // Each of ours that this run is made for had something to say, or the test says nothing. Those of the architecture
  // that need a placement have tests of their own.
  const std::set<std::string_view> silent = {"grad_profile", "ln_input", "depth_profile", "headroom", "dead_depth",
                                             "warmup", "rank_outlier"};
  for (const auto& detector : whole) {
    const bool wanted = GetParam() == "gyrostat" && !silent.contains(detector->name());
    EXPECT_TRUE(!wanted || heard.count(std::string(detector->name())) == 1) << detector->name();
  }
}

TEST_P(RuleSet, ForeignBytesLeaveADetectorAsNew) {
  const std::vector<model::Report> run = EventfulRun(120);
  auto detectors = Make();
  for (const auto& detector : detectors) {
    std::vector<model::Finding> said;
    for (const model::Report& report : run) detector->Observe(report, &said);
    base::ByteWriter saved, fresh, after;
    detector->Save(&saved);
    for (const auto& other : Make())
      if (other->name() == detector->name()) other->Save(&fresh);
    for (size_t size = 0; size < saved.bytes().size(); size += 1 + saved.bytes().size() / 200) {
      base::ByteReader cut(std::string_view(saved.bytes()).substr(0, size));
      EXPECT_FALSE(detector->Load(&cut)) << detector->name() << " at " << size;
    }
    detector->Save(&after);
    EXPECT_EQ(after.bytes(), fresh.bytes()) << detector->name();
  }
}

TEST_P(RuleSet, EveryFindingIsWholeAndEndsUnderItsKey) {
  for (const auto& detector : Make()) {
    std::vector<model::Finding> said;
    for (const model::Report& report : EventfulRun(600)) detector->Observe(report, &said);
    std::set<uint64_t> open;
    for (const model::Finding& finding : said) {
      EXPECT_EQ(finding.detector, detector->name());
      EXPECT_NE(finding.key, 0u);
      EXPECT_EQ(finding.id, 0u);
      EXPECT_NE(finding.signal, Signal::kNone);
      EXPECT_LE(finding.step_begin, finding.step_detected);
      EXPECT_FALSE(finding.message.empty());
      EXPECT_EQ(finding.message.back(), '.') << finding.message;
      if (finding.step_end) {
        EXPECT_GE(*finding.step_end, finding.step_begin);
        EXPECT_EQ(open.erase(finding.key), 1u);
      } else {
        open.insert(finding.key);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, RuleSet, ::testing::ValuesIn(RuleSetNames()), [](const auto& rules) {
  std::string name(rules.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Every threshold of the detectors of EventfulRun doubled or so, and no window.
DetectOptions OtherThresholds() {
  DetectOptions options;
  options.nonfinite = {.lasting_reports = 6, .scaled_lasting_reports = 40, .heal_reports = 6};
  options.loss_spike.enter_sigmas = options.grad_spike.enter_sigmas = 14;
  options.loss_spike.abandon_records = options.grad_spike.abandon_records = 800;
  options.spike_score.spikes_min = 8;
  options.attn_logit.tau = 50;
  options.attn_logit.quiet_reports = 128;
  options.divergence.long_deviations = 14;
  options.divergence.hold_records = 8;
  options.grad_growth.warning_ratio = 8;
  options.grad_growth.hold_reports = 32;
  options.grad_roughness.info_roughness = 0.8;
  options.log_z.drift_nats = 10;
  options.update_ratio.ratio = 6;
  options.adam_eps.hold_reports = 128;
  options.loss_scale.halvings = 6;
  options.attn_entropy = {.entropy_min_nats = 0.1, .fall_ratio = 8, .hold_reports = 20, .heads_share = 0.1,
                          .quiet_reports = 128};
  options.grad_profile.high_reports = 10;
  options.ln_input.level_reports = 16;
  options.depth_profile.decided_nats = 6;
  options.headroom.level_reports = 6;
  options.dead_depth.dead_reports = 128;
  options.warmup.ramp_nats = 0.4;
  options.instrument.wrong_reports = 16;
  options.rank_outlier.offences = 32;
  return options;
}

TEST(Catalog, StateOutlivesAChangeOfThresholdsAndCapsAtAnyStep) {
  DetectOptions capped = OtherThresholds();
  for (Voice& voice : capped.voices) voice.severity_max = model::Severity::kInfo;
  auto detectors = MakeDetectors(DetectOptions(), Spec());
  std::vector<model::Finding> said;
  for (const model::Report& report : EventfulRun(260)) {
    for (const auto& detector : detectors) detector->Observe(report, &said);
    if (report.step % 20 != 0) continue;
    for (const DetectOptions& options : {OtherThresholds(), capped}) {
      const auto others = MakeDetectors(options, Spec());
      ASSERT_EQ(others.size(), detectors.size());
      for (size_t i = 0; i < others.size(); ++i) {
        base::ByteWriter saved, again;
        detectors[i]->Save(&saved);
        base::ByteReader in(saved.bytes());
        EXPECT_TRUE(others[i]->Load(&in)) << others[i]->name() << " at " << report.step;
        others[i]->Save(&again);
        EXPECT_EQ(again.bytes(), saved.bytes()) << others[i]->name() << " at " << report.step;
      }
    }
  }
}

TEST(Catalog, MakesOnlyTheDetectorsThatMaySpeak) {
  const std::vector<std::string_view> names = DetectorNames();
  ASSERT_EQ(names.size(), kDetectors);
  for (size_t off = 0; off < kDetectors; ++off) {
    DetectOptions options;
    options.voices[off].enabled = false;
    EXPECT_EQ(DetectorIndex(names[off]), off);
    std::set<std::string_view> made;
    const auto detectors = MakeDetectors(options, Spec());
    for (const auto& detector : detectors) made.insert(detector->name());
    EXPECT_FALSE(made.contains(names[off]));
    EXPECT_EQ(made.size(), names[off] == "silence" ? kDetectors - 1 : kDetectors - 2);
  }
  EXPECT_EQ(DetectorIndex("no such"), kDetectors);
}

TEST(Catalog, OptionsComeBackFromBytes) {
  DetectOptions options;
  options.attn_logit.tau = 30;
  options.grad_spike.enter_sigmas = 9;
  options.attn_entropy.quiet_reports = 7;
  options.voices[3] = {.enabled = false, .severity_max = model::Severity::kInfo};
  base::ByteWriter out;
  base::SaveTo(&out, options);
  base::ByteReader in(out.bytes());
  DetectOptions back;
  ASSERT_TRUE(base::LoadFrom(&in, &back));
  EXPECT_EQ(back.attn_logit.tau, 30);
  EXPECT_EQ(back.grad_spike.enter_sigmas, 9);
  EXPECT_EQ(back.attn_entropy.quiet_reports, 7u);
  EXPECT_FALSE(back.voices[3].enabled);
  EXPECT_EQ(back.voices[3].severity_max, model::Severity::kInfo);
  EXPECT_EQ(back.grad_spike.signal, Signal::kGradNorm);
}

}  // namespace
}  // namespace gyrostat::detect
