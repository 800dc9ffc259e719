// The client's own check: every refusal with its sentence.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "remedy/qk_clip.h"

namespace gyrostat::remedy {
namespace {

using model::ClipVariant;

class ValidateTest : public ::testing::Test {
 protected:
  ValidateTest() {
    order_.kind = model::InterventionKind::kQkClip;
    order_.basis = 7;
    order_.tau = 30;
    order_.variant = ClipVariant::kMha;
    order_.split = 0.5;
    EXPECT_TRUE(ledger_.Apply({{1}, {0}, {1000}}));  // Version 1: the basis.
    EXPECT_TRUE(ledger_.Apply({{1}, {0}, {500}}));   // Version 2: now.
    order_.entries = {{0, 1, 45, *ClipTarget(45, 30, 0)}, {1, 0, 60, *ClipTarget(60, 30, 1000)}};
  }
  std::string Why() { return Validate(order_, shape_, ledger_, measured_, check_); }

  model::Order order_;
  ClipShape shape_{ClipVariant::kMha, 0.5, 2, 2, 2};
  ClipLedger ledger_{2, 2};
  std::vector<float> measured_ = {10, 45, 60, -3};
  ClipCheck check_{.tau_min = 20, .kind = model::LogitKind::kExact, .basis_version = 1};
};

TEST_F(ValidateTest, LetsARightOrderPass) { EXPECT_EQ(Why(), ""); }

TEST_F(ValidateTest, RefusesAnotherKind) {
  order_.kind = model::InterventionKind::kHalt;
  EXPECT_EQ(Why(), "the order is a halt, wanted qk_clip");
}

TEST_F(ValidateTest, RefusesATauBelowTheJobsOwn) {
  check_.tau_min = 31;
  EXPECT_EQ(Why(), "tau is 30, below this job's tau_min of 31");
  check_.tau_min = 30;
  EXPECT_EQ(Why(), "");
}

TEST_F(ValidateTest, RefusesATauThatIsNoNumber) {
  order_.tau = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Why(), "tau is nan, wanted a finite number above 0");
  order_.tau = 0;
  EXPECT_EQ(Why(), "tau is 0, wanted a finite number above 0");
  order_.tau = -5;
  EXPECT_EQ(Why(), "tau is -5, wanted a finite number above 0");
}

TEST_F(ValidateTest, RefusesAVariantOrSplitThatIsNotThisModels) {
  order_.variant = ClipVariant::kQOnly;
  EXPECT_EQ(Why(), "variant is q_only, wanted mha for this attention");
  order_.variant = ClipVariant::kMha;
  order_.split = 0.25;
  EXPECT_EQ(Why(), "split is 0.25, wanted 0.5");
}

TEST_F(ValidateTest, RefusesMaximaThatAreOnlyEstimates) {
  check_.kind = model::LogitKind::kSampledLower;
  EXPECT_EQ(Why(), "the attention maxima are of kind sampled_lower, wanted exact or lse_upper");
}

TEST_F(ValidateTest, RefusesABasisItDoesNotKnow) {
  measured_.clear();
  EXPECT_EQ(Why(), "the maxima of boundary 7 are not known here any more");
  measured_ = {1, 2, 3};
  EXPECT_EQ(Why(), "the basis has 3 maxima, wanted 4");
  measured_ = {10, 45, 60, -3};
  check_.basis_version = 3;
  EXPECT_EQ(Why(), "the ledger at version 3 is not known any more, it stands at 2");
}

TEST_F(ValidateTest, RefusesForeignRepeatedAndUnorderedHeads) {
  order_.entries[1].head = 2;
  EXPECT_EQ(Why(), "head L1 H2 is foreign, wanted layers below 2 and heads below 2");
  order_.entries[1] = order_.entries[0];
  EXPECT_EQ(Why(), "head L0 H1 is named twice, wanted each head once");
  order_.entries[0] = {1, 0, 60, *ClipTarget(60, 30, 1000)};
  EXPECT_EQ(Why(), "head L0 H1 is out of order, wanted entries in order of layer and head");
  order_.entries.clear();
  EXPECT_EQ(Why(), "the order names no head, wanted at least one");
}

TEST_F(ValidateTest, RefusesAMaximumThatWasNotMeasured) {
  order_.entries[0].reported_max = std::nextafterf(45, 46);
  EXPECT_EQ(Why(), "head L0 H1: the order says a maximum of 45.0000038, wanted the measured 45");
}

TEST_F(ValidateTest, RefusesAHeadThatIsNotAboveTauOrNotFinite) {
  order_.entries[0] = {0, 0, 10, 0};
  EXPECT_EQ(Why(), "head L0 H0: the maximum is 10, wanted a finite number above tau 30");
  measured_[0] = order_.entries[0].reported_max = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Why(), "head L0 H0: the maximum is inf, wanted a finite number above tau 30");
  measured_[0] = order_.entries[0].reported_max = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Why(), "head L0 H0: the maximum is nan, wanted a finite number above tau 30");
}

TEST_F(ValidateTest, RefusesTicksMoreThanHalfAPercentOff) {
  const Ticks right = LnTicks(1.5);
  order_.entries[0].target_ticks = right + right / 200;
  EXPECT_EQ(Why(), "");
  order_.entries[0].target_ticks = right + right / 200 + 1;
  EXPECT_EQ(Why(),
            "head L0 H1: the target is 427287 ticks, more than 0.5 % away from 425161, which basis, tau and "
            "maximum give");
  order_.entries[0].target_ticks = right - right / 200 - 1;
  EXPECT_NE(Why(), "");
}

TEST_F(ValidateTest, RefusesATargetBeyondTheBoundOrBelowTheBasis) {
  measured_[2] = order_.entries[1].reported_max = 3000;
  order_.entries[1].target_ticks = 1000 + kClipTicksMax;
  EXPECT_EQ(Why(), "");
  ++order_.entries[1].target_ticks;
  EXPECT_EQ(Why(),
            "head L1 H0: the target is 2415436 ticks, wanted between the ledger's 1000 at the basis and ln 10 more, "
            "2415435");
  order_.entries[1].target_ticks = std::numeric_limits<Ticks>::max();
  EXPECT_NE(Why(), "");
  order_.entries[1].target_ticks = std::numeric_limits<Ticks>::min();
  EXPECT_NE(Why(), "");
}

TEST_F(ValidateTest, ComparesWithTheBasisNeverWithNow) {
  // Since the basis another order charged this head more: the target is right all the same, and adds nothing.
  ASSERT_TRUE(ledger_.Apply({{1}, {0}, {2 * kClipTicksMax}}));
  EXPECT_EQ(Why(), "");
}

TEST_F(ValidateTest, JudgesOnlyTheTermsOfALocalOrder) {
  order_.where = model::ClipWhere::kLocal;
  order_.entries.clear();
  measured_.clear();
  EXPECT_EQ(Why(), "");
  order_.tau = 0;
  EXPECT_EQ(Why(), "") << "tau 0 says stop";
  order_.tau = 19;
  EXPECT_EQ(Why(), "tau is 19, below this job's tau_min of 20");
}

TEST_F(ValidateTest, RefusesALedgerOfAnotherShape) {
  ledger_ = ClipLedger(2, 3);
  EXPECT_EQ(Why(), "the ledger has 2 x 3 heads, wanted 2 x 2");
}

}  // namespace
}  // namespace gyrostat::remedy
