#include "detect/catalog.h"

#include <gtest/gtest.h>

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
  return spec;
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
    double loss = 3 - 0.003 * step + 0.02 * random.Normal();
    if (step % 61 == 60) loss *= 1 + random.Uniform();
    if (step >= 120 && step < 124) loss = NAN;
    if (step % 17 != 3) r.SetScalar(Signal::kLoss, loss);
    r.SetScalar(Signal::kGradNorm, step % 40 == 5 ? -1 : std::exp(0.2 * random.Normal() + (step % 70 == 69 ? 3 : 0)));
    r.SetScalar(Signal::kSpikeScoreLoss, step == 100 ? 1 : 0);
    const auto top = static_cast<float>(20 * std::exp(0.02 * std::min(step, 140)));
    r.MutableArray(Signal::kAttnLogitMax) = {5, top, step % 9 == 0 ? NAN : 7.f, model::kAbsent};
    r.MutableArray(Signal::kHiddenAbsmax) = {1, 2, step == 90 ? INFINITY : 3.f};
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

TEST(Catalog, SavedAndLoadedAtEachStepTheFindingsAreTheSameBitForBit) {
  const std::vector<model::Report> run = EventfulRun(260);
  auto whole = MakeDetectors(DetectOptions(), Spec()), broken = MakeDetectors(DetectOptions(), Spec());
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
      broken[i] = std::move(MakeDetectors(DetectOptions(), Spec())[i]);
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
  // Each of those that this run is made for had something to say, or the test says nothing.
  for (const char* name : {"nonfinite", "loss_spike", "grad_spike", "spike_score", "attn_logit", "instrument"})
    EXPECT_EQ(heard.count(name), 1u) << name;
}

TEST(Catalog, ForeignBytesLeaveADetectorAsNew) {
  const std::vector<model::Report> run = EventfulRun(120);
  auto detectors = MakeDetectors(DetectOptions(), Spec());
  for (const auto& detector : detectors) {
    std::vector<model::Finding> said;
    for (const model::Report& report : run) detector->Observe(report, &said);
    base::ByteWriter saved, fresh, after;
    detector->Save(&saved);
    for (const auto& unused : MakeDetectors(DetectOptions(), Spec()))
      if (unused->name() == detector->name()) unused->Save(&fresh);
    for (size_t size = 0; size < saved.bytes().size(); size += 1 + saved.bytes().size() / 200) {
      base::ByteReader cut(std::string_view(saved.bytes()).substr(0, size));
      EXPECT_FALSE(detector->Load(&cut)) << detector->name() << " at " << size;
    }
    detector->Save(&after);
    EXPECT_EQ(after.bytes(), fresh.bytes()) << detector->name();
  }
}

TEST(Catalog, EveryFindingIsWholeAndEndsUnderItsKey) {
  for (const auto& detector : MakeDetectors(DetectOptions(), Spec())) {
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

TEST(Catalog, OptionsComeBackFromBytes) {
  DetectOptions options;
  options.attn_logit.tau = 30;
  options.grad_spike.enter_sigmas = 9;
  base::ByteWriter out;
  base::SaveTo(&out, options);
  base::ByteReader in(out.bytes());
  DetectOptions back;
  ASSERT_TRUE(base::LoadFrom(&in, &back));
  EXPECT_EQ(back.attn_logit.tau, 30);
  EXPECT_EQ(back.grad_spike.enter_sigmas, 9);
  EXPECT_EQ(back.grad_spike.signal, Signal::kGradNorm);
}

}  // namespace
}  // namespace gyrostat::detect
