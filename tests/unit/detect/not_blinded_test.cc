// One outlier, NaN, Inf, -1, absent value or resume blinds no detector of ours: what comes after is found as soon as
// it would have been found without. And in steady state no detector allocates.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <new>
#include <optional>
#include <set>

#include "detect/catalog.h"
#include "support/lcg.h"
#include "unit/detect/feed.h"
#include "unit/detect/not_blinded_cases.h"

// Counts every allocation of this program; tests look at differences.
static std::atomic<uint64_t> allocations{0};
[[gnu::noinline]] void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace gyrostat::detect {
namespace {

using model::Report;
using model::Signal;

// Trouble one report long comes shortly before the event, four bad reports or a break longer before it, so that what
// those begin is over and what they wrote into the windows is not.
constexpr int kEvent = 400, kShortBefore = 380, kLongBefore = 300, kBreak = 150, kSteps = 720;
// In the middle of what is to be found.
constexpr int kWithin = kEvent + 3;

std::unique_ptr<Detector> Make(const BlindCase& c) {
  model::ModelSpec spec = BlindSpec();
  c.declare(&spec);
  for (auto& detector : MakeDetectors(DetectOptions(), spec))
    if (detector->name() == c.detector) return std::move(detector);
  return nullptr;
}

using Trouble = std::function<void(Report*)>;

// Each value of each signal, or one value of each array, is `bad`.
void Spoil(Report* r, double bad, bool one_of_each) {
  for (const model::SignalInfo& info : model::Signals()) {
    if (!r->Has(info.signal) || info.signal == Signal::kLearningRate) continue;
    if (model::IsScalar(info.signal)) {
      if (!one_of_each) r->SetScalar(info.signal, bad);
      continue;
    }
    std::vector<float>& values = r->MutableArray(info.signal);
    if (one_of_each) values[values.size() / 2] = static_cast<float>(bad);
    else std::fill(values.begin(), values.end(), static_cast<float>(bad));
  }
}

struct Named {
  std::string name;
  Trouble trouble;
};
std::vector<Named> Troubles() {
  std::vector<Named> all;
  for (const double bad : {1e30, 1e6, -1e30, kNan, kInf, -kInf, -1.0, 0.0, static_cast<double>(model::kAbsent)})
    for (const bool one : {false, true})
      all.push_back({(one ? "one value of each array " : "every value ") + std::to_string(bad),
                     [bad, one](Report* r) { Spoil(r, bad, one); }});
  all.push_back({"nothing measured", [](Report* r) {
                   const model::Step step = r->step;
                   const uint64_t sequence = r->sequence;
                   r->Clear();
                   r->step = step, r->sequence = r->boundary = sequence;
                 }});
  for (const double rate : {kNan, kInf, -1.0, 0.0})
    all.push_back({"learning rate " + std::to_string(rate),
                   [rate](Report* r) { r->SetScalar(Signal::kLearningRate, rate); }});
  return all;
}

// What happens to a run besides its event.
struct Plot {
  std::vector<int> trouble_at = {};
  Trouble trouble = {};
  std::optional<Break> break_kind = {};  // At kBreak.
  // From kBreak on.
  double rate_times = 1, tokens_times = 1;
};

// The step at which what happens from kEvent on is first told, as a finding that begins or gets worse; -1 for never.
int FoundAt(const BlindCase& c, const Plot& plot) {
  Feed feed(Make(c));
  testing::Lcg random(11);
  for (int step = 0; step < kSteps; ++step) {
    if (plot.break_kind && step == kBreak) feed.Break(*plot.break_kind);
    const auto fresh = feed.Give([&](Report* r) {
      c.healthy(r, step, &random);
      if (r->Has(Signal::kLearningRate) && step >= kBreak)
        r->SetScalar(Signal::kLearningRate, r->Scalar(Signal::kLearningRate) * plot.rate_times);
      r->user.emplace_back("tokens", step >= kBreak ? 1e6 * plot.tokens_times : 1e6);
      if (step >= kEvent) c.happens(r, step - kEvent);
      if (std::find(plot.trouble_at.begin(), plot.trouble_at.end(), step) != plot.trouble_at.end()) plot.trouble(r);
    });
    for (const model::Finding& f : fresh)
      if (step >= kEvent && !f.step_end) return step;
  }
  return -1;
}

class NotBlinded : public ::testing::TestWithParam<size_t> {
 protected:
  NotBlinded() { EXPECT_GE(without_, kEvent) << "nothing to find"; }
  void ExpectFound(const Plot& plot, int later, const std::string& what) const {
    const int with = FoundAt(case_, plot);
    EXPECT_GE(with, kEvent) << case_.name << ", " << what;
    EXPECT_LE(with, without_ + later) << case_.name << ", " << what;
  }

  const BlindCase& case_ = BlindCases()[GetParam()];
  const int without_ = FoundAt(case_, {});
};

TEST_P(NotBlinded, ByOneBadReportBeforeIt) {
  for (const Named& each : Troubles())
    ExpectFound({.trouble_at = {kShortBefore}, .trouble = each.trouble}, case_.slack, each.name);
}

TEST_P(NotBlinded, ByABurstOfThem) {
  for (const double bad : {1e30, kNan, kInf, -1.0})
    ExpectFound({.trouble_at = {kLongBefore, kLongBefore + 2, kLongBefore + 4, kLongBefore + 6},
                 .trouble = [bad](Report* r) { Spoil(r, bad, false); }},
                3 * case_.slack, std::to_string(bad));
}

// Trouble of the kind that the event is made of may itself be what is first told; it must not keep it from being told.
TEST_P(NotBlinded, ByOneBadReportInTheMiddleOfIt) {
  for (const Named& each : Troubles())
    ExpectFound({.trouble_at = {kWithin}, .trouble = each.trouble}, case_.window, each.name);
}

TEST_P(NotBlinded, ByARestartOrARollback) {
  for (const Break kind : {Break::kNewAttempt, Break::kNewEpoch, Break::kIntervention})
    ExpectFound({.break_kind = kind}, case_.slack,
                "break " + std::to_string(static_cast<int>(kind)));
}

TEST_P(NotBlinded, ByAJumpOfTheLearningRateOrOfTheTokens) {
  for (const double times : {0.25, 3.0}) {
    ExpectFound({.rate_times = times}, case_.slack, "rate");
    ExpectFound({.tokens_times = times}, case_.slack, "tokens");
  }
}

TEST_P(NotBlinded, AndHealthyReportsSayNothing) {
  Feed feed(Make(case_));
  testing::Lcg random(12);
  for (int step = 0; step < 3000; ++step) feed.Give([&](Report* r) { case_.healthy(r, step, &random); });
  for (const model::Finding& f : feed.said) ADD_FAILURE() << f.detector << ": " << f.message;
}

INSTANTIATE_TEST_SUITE_P(Catalog, NotBlinded, ::testing::Range(size_t{0}, BlindCases().size()), [](const auto& index) {
  return std::string(BlindCases()[index.param].name);
});

TEST(NotBlindedCases, HoldEveryDetectorButTheScore) {
  // The score is a percentage over 1,000 steps by definition, silence has no reports: their own tests have the cases.
  std::set<std::string_view> with_case = {"spike_score", "silence"};
  for (const BlindCase& c : BlindCases()) with_case.insert(c.detector);
  for (const std::string_view name : DetectorNames()) EXPECT_TRUE(with_case.contains(name)) << name;
}

// What the detectors of the architecture read besides.
void AddStream(Report* r, testing::Lcg* random) {
  r->MutableArray(Signal::kLayerGradNorm).clear();
  Stream(r, 0, random);
  NormInputs(r, 0, random);
  Ranks(r, 0, random);
}

TEST(SteadyState, NoDetectorAllocates) {
  model::ModelSpec spec = BlindSpec();
  PreNorm(&spec);
  testing::Lcg random(13);
  std::vector<Report> reports(700);
  for (size_t i = 0; i < reports.size(); ++i) {
    reports[i].step = reports[i].sequence = i + 1;
    Plain(&reports[i], static_cast<int>(i), &random);
    AddStream(&reports[i], &random);
  }
  for (const std::string_view rules : RuleSetNames()) {
    if (rules == "olmo2") continue;  // Its window is of 1,000.
    for (const auto& detector : MakeRuleSet(rules, DetectOptions(), spec)) {
      std::vector<model::Finding> said;
      for (size_t i = 0; i < 500; ++i) detector->Observe(reports[i], &said);
      const size_t before_said = said.size();
      const uint64_t before = allocations.load();
      for (size_t i = 500; i < 700; ++i) detector->Observe(reports[i], &said);
      if (said.size() != before_said) continue;  // Findings allocate; ZClip has many.
      EXPECT_EQ(allocations.load(), before) << detector->name();
    }
  }
}

}  // namespace
}  // namespace gyrostat::detect
