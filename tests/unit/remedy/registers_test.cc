#include "remedy/registers.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gyrostat::remedy {
namespace {

RegisterFile SomeFile() {
  return RegisterFile(std::vector<RegisterBounds>{
      {.min = 0.5f, .max = 8, .ln_change = 1.6094379, .ramp_max = 200, .initial = 2}, {}, {.max = 1}});
}

TEST(Registers, ARampIsGeometricAndEndsWhereItWasSent) {
  RegisterFile file = SomeFile();
  file.Set(0, 8, 50, 100);
  EXPECT_EQ(file.at(0).At(99), 2);
  EXPECT_EQ(file.at(0).At(100), 2);
  EXPECT_NEAR(file.at(0).At(125), 4, 1e-5);
  EXPECT_EQ(file.at(0).At(150), 8);
  for (model::Boundary b = 100; b < 150; ++b) EXPECT_LT(file.at(0).At(b), file.at(0).At(b + 1));
  file.Set(0, 2, 50, 200);
  EXPECT_NEAR(file.at(0).At(225), 4, 1e-5);
}

TEST(Registers, ARampFallsAsItRises) {
  const Register up{.from = 1.25f, .to = 2.21f, .first = 7, .ramp = 20}, down{2.21f, 1.25f, 7, 20};
  for (model::Boundary k = 1; k < 20; ++k) {
    EXPECT_NEAR(down.At(7 + k), up.At(27 - k), 4e-6);
    EXPECT_NEAR(up.At(7 + k) / up.At(6 + k), std::pow(2.21 / 1.25, 1.0 / 20), 4e-6) << k;
    EXPECT_LT(down.At(7 + k), down.At(6 + k));
  }
  EXPECT_EQ(down.At(27), 1.25f);
  EXPECT_EQ(down.At(1000000), 1.25f);
}

TEST(Registers, ARampHasTheSameBitsEverywhere) {
  // Integers and one division: whoever computes something else has changed what checkpoints mean.
  EXPECT_EQ((Register{.from = 1, .to = 4, .first = 0, .ramp = 50}.At(1)), 0x1.07326cp+0f);
  EXPECT_EQ((Register{.from = 1, .to = 2.2133638394006434f, .first = 10, .ramp = 50}.At(33)), 0x1.70f27p+0f);
}

TEST(Registers, BetasMoveAtOnceWhateverTheRampOfTheirOrder) {
  EXPECT_EQ(RampOf(kRegisterAlphas + 1023, 50), 50u);
  EXPECT_EQ(RampOf(kRegisterBetas, 50), 0u);
}

TEST(Registers, ANewSetBeginsWhereTheRampStands) {
  RegisterFile file = SomeFile();
  file.Set(0, 8, 50, 100);
  file.Set(0, 6, 0, 125);
  EXPECT_NEAR(file.at(0).from, 4, 1e-5);
  EXPECT_EQ(file.at(0).At(125), 6);
  EXPECT_EQ(file.at(0).version, 2u);
}

TEST(Registers, WhatIsOutsideBoundsIsRefused) {
  const RegisterFile file = SomeFile();
  EXPECT_EQ(file.Refusal(0, 4, 50, 1), nullptr);
  EXPECT_STREQ(file.Refusal(0, 8.5f, 50, 1), "a value outside the register's bounds");
  EXPECT_STREQ(file.Refusal(0, std::nanf(""), 50, 1), "a value outside the register's bounds");
  EXPECT_STREQ(file.Refusal(0, 4, 201, 1), "a ramp longer than the register's bound");
  EXPECT_STREQ(file.Refusal(1, 1, 0, 1), "a register that this job does not have");
  EXPECT_STREQ(file.Refusal(3, 1, 0, 1), "a register that this job does not have");
  RegisterFile moved = SomeFile();
  moved.Set(0, 0.5f, 0, 1);
  EXPECT_EQ(moved.Refusal(0, 2.5f, 0, 2), nullptr);  // ln 5, the bound.
  EXPECT_STREQ(moved.Refusal(0, 2.6f, 0, 2), "a change larger than the register's bound");
}

TEST(Registers, ASecondDeliveryFindsAnotherVersion) {
  RegisterFile file = SomeFile();
  EXPECT_TRUE(file.Expects(0, 0));
  file.Set(0, 4, 0, 1);
  EXPECT_FALSE(file.Expects(0, 0));
  EXPECT_TRUE(file.Expects(0, 1));
}

TEST(Registers, TheHashSeesWhatWasSetAndWhatWasRead) {
  RegisterFile a = SomeFile(), b = SomeFile();
  EXPECT_EQ(a.hash(), b.hash());
  a.Set(0, 4, 10, 5);
  EXPECT_NE(a.hash(), b.hash());
  b.Set(0, 4, 10, 5);
  EXPECT_EQ(a.hash(), b.hash());
  a.Observe(0, 3.5f);
  EXPECT_NE(a.HashAt(5), b.HashAt(5));
  b.Observe(0, std::nextafter(3.5f, 4.0f));
  EXPECT_NE(a.HashAt(5), b.HashAt(5));
  b.Observe(0, 3.5f);
  EXPECT_EQ(a.HashAt(5), b.HashAt(5));
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_NE(a.BoundsHash(), RegisterFile(std::vector<RegisterBounds>{{.max = 3}}).BoundsHash());
}

TEST(Registers, WhoCanReadNothingAgreesWithWhoReadsWhatIsSet) {
  RegisterFile owner = SomeFile(), other = SomeFile();
  owner.Set(0, 8, 50, 100);
  other.Set(0, 8, 50, 100);
  for (model::Boundary b = 100; b < 160; ++b) {
    owner.Observe(0, owner.at(0).At(b));
    EXPECT_EQ(owner.HashAt(b), other.HashAt(b)) << b;
    EXPECT_EQ(owner.HashAt(b + 1) == other.HashAt(b + 1), b >= 150) << "one boundary behind on its ramp";
  }
}

TEST(Registers, ARestoredRampGoesOnWhereItStood) {
  RegisterFile file = SomeFile();
  file.Set(0, 8, 50, 100);
  RegisterFile other = SomeFile();
  ASSERT_TRUE(other.Restore(file.Saved(), 125, 3));  // Saved after boundary 125; here only 3 have passed.
  EXPECT_EQ(other.at(0).At(3), file.at(0).At(125));
  EXPECT_EQ(other.at(0).At(28), 8);
  EXPECT_EQ(other.at(0).version, 1u);
  const uint64_t before = other.hash();
  EXPECT_FALSE(other.Restore(std::vector<model::RegisterReading>{{.id = 1}}, 0, 0));
  EXPECT_EQ(other.hash(), before);
  other.Reset();
  EXPECT_EQ(other.hash(), SomeFile().hash());
}

}  // namespace
}  // namespace gyrostat::remedy
