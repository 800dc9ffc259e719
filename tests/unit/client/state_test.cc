#include "client/src/state.h"

#include <gtest/gtest.h>

#include <string>

namespace gyrostat::client {
namespace {

remedy::ClipLedger SomeLedger() {
  remedy::ClipLedger ledger(3, 4);
  model::LedgerDelta delta;
  delta.layer = {0, 2};
  delta.head = {1, 3};
  delta.ticks = {1000, 5'000'000'000};
  ledger.Apply(delta);
  return ledger;
}

const model::ModelSpec& PostNorm() {
  static const model::ModelSpec kModel = [] {
    model::ModelSpec model;
    model.layers = 3;
    model.norm_placement = model::NormPlacement::kPost;
    model.schedule_peak = 1e-3;
    model.warmup_steps = 100;
    return model;
  }();
  return kModel;
}

JobRegisters SomeRegisters() {
  JobRegisters registers(&PostNorm());
  const model::RegisterSet alpha[] = {{remedy::kRegisterAlphas + 1, 2, 0}};
  registers.Apply(model::InterventionKind::kDeepnormAlpha, alpha, 50, 70);
  const model::RegisterSet ray[] = {{16, 1e-4f, 0}, {17, 1e-6f, 0}, {18, 60, 0}, {19, 700, 0}, {20, 20, 0},
                                    {21, 0.5f, 0}};
  registers.Apply(model::InterventionKind::kWarmupExtension, ray, 0, 40);
  const model::RegisterSet scale[] = {{0, 0.25f, 0}, {1, 90, 0}};
  registers.Apply(model::InterventionKind::kLrScale, scale, 0, 70);
  return registers;
}

std::string SomeState() {
  model::OrderId id;
  id.bytes.fill(7);
  return SaveState(*model::AttemptId::FromHex("00112233445566778899aabbccddeeff"), 2, 77, SomeLedger(),
                   {{id, model::AckOutcome::kApplied}}, SomeRegisters());
}

TEST(State, ComesBackAsItWasSaved) {
  std::string error;
  const auto state = LoadState(SomeState(), 3, 4, &error);
  ASSERT_NE(state, nullptr) << error;
  EXPECT_EQ(state->ledger_version, 1u);
  EXPECT_EQ(state->ledger, SomeLedger().Sparse());
  ASSERT_EQ(state->outcomes.size(), 1u);
  EXPECT_EQ(state->outcomes[0].second, model::AckOutcome::kApplied);
  EXPECT_EQ(state->boundary, 77u);
  EXPECT_EQ(state->registers, SomeRegisters().file().Saved());
  EXPECT_EQ(state->envelope.hash(), SomeRegisters().envelope().hash());
}

TEST(State, OfAnotherAttemptGoesOnWhereItStood) {
  JobRegisters before = SomeRegisters(), after(&PostNorm());
  std::string error;
  const auto state = LoadState(SomeState(), 3, 4, &error);
  ASSERT_TRUE(after.Restore(state->registers, state->envelope, state->boundary, 3, &error)) << error;
  for (model::Boundary b = 77; b < 800; b += 1) {
    EXPECT_EQ(after.file().at(65).At(b - 74), before.file().at(65).At(b)) << b;
    EXPECT_NEAR(after.Rate(5e-4, b - 74), before.Rate(5e-4, b), 1e-18) << b;
    before.Passed(b);
    after.Passed(b - 74);
  }
  EXPECT_TRUE(before.envelope().idle());
  EXPECT_EQ(after.file().at(remedy::kRegisterLrScaleUntil).to, 16);
  EXPECT_EQ(after.file().at(remedy::kRegisterRayUntil).to, 626);
  EXPECT_EQ(after.file().at(remedy::kRegisterRayBoundary).to, 0) << "it began before this attempt";
  EXPECT_FLOAT_EQ(after.file().at(remedy::kRegisterRayRate).to, 1.14e-4f);
}

TEST(State, OfAJobThatDeclaresOtherwiseIsRefusedInWords) {
  std::string error;
  const auto state = LoadState(SomeState(), 3, 4, &error);
  model::ModelSpec pre = PostNorm();
  pre.norm_placement = model::NormPlacement::kPre;
  JobRegisters registers(&pre);
  const uint64_t blank = registers.HashAt(3);
  EXPECT_FALSE(registers.Restore(state->registers, state->envelope, state->boundary, 3, &error));
  EXPECT_EQ(error, "the state holds alpha of layer 1, which this job does not have as it is declared");
  EXPECT_EQ(registers.HashAt(3), blank);
}

TEST(State, CutAtAnyByteIsRefused) {
  const std::string bytes = SomeState();
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::string error;
    EXPECT_EQ(LoadState({bytes.data(), size}, 3, 4, &error), nullptr) << size;
    EXPECT_FALSE(error.empty());
  }
}

TEST(State, WithAnyByteChangedIsRefused) {
  const std::string bytes = SomeState();
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string bad = bytes, error;
    bad[i] = static_cast<char>(bad[i] ^ 0x41);
    EXPECT_EQ(LoadState(bad, 3, 4, &error), nullptr) << i;
  }
}

TEST(State, RefusalsSayWhy) {
  std::string error;
  EXPECT_EQ(LoadState("something else entirely", 3, 4, &error), nullptr);
  EXPECT_EQ(error, "the state does not begin as a state of gyrostat does");
  std::string newer = SomeState();
  newer[4] = 9;
  EXPECT_EQ(LoadState(newer, 3, 4, &error), nullptr);
  EXPECT_EQ(error, "the state has format 9, wanted 3");
  EXPECT_EQ(LoadState(SomeState() + "x", 3, 4, &error), nullptr);
  EXPECT_NE(error.find("is cut or damaged"), std::string::npos);
  EXPECT_EQ(LoadState(SomeState(), 3, 8, &error), nullptr);
  EXPECT_EQ(error, "the state is of 3 layers and 4 heads, the model has 3 and 8");
}

TEST(State, OfAModelWithoutKnownShapeIsEmptyAndFine) {
  std::string error;
  const model::ModelSpec unknown;
  const std::string bytes = SaveState({}, 0, 0, remedy::ClipLedger(), {}, JobRegisters(&unknown));
  EXPECT_NE(LoadState(bytes, 0, 0, &error), nullptr) << error;
}

}  // namespace
}  // namespace gyrostat::client
