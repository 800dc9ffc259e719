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

std::string SomeState() {
  model::OrderId id;
  id.bytes.fill(7);
  return SaveState(*model::AttemptId::FromHex("00112233445566778899aabbccddeeff"), 2, 77, SomeLedger(),
                   {{id, model::AckOutcome::kApplied}}, {{.id = 5, .value = {.to = 2, .first = 70, .ramp = 50}}});
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
  ASSERT_EQ(state->registers.size(), 1u);
  EXPECT_EQ(state->registers[0].id, 5u);
  EXPECT_EQ(state->registers[0].value, (Register{.to = 2, .first = 70, .ramp = 50}));
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
  EXPECT_EQ(error, "the state has format 9, wanted 2");
  EXPECT_EQ(LoadState(SomeState() + "x", 3, 4, &error), nullptr);
  EXPECT_NE(error.find("is cut or damaged"), std::string::npos);
  EXPECT_EQ(LoadState(SomeState(), 3, 8, &error), nullptr);
  EXPECT_EQ(error, "the state is of 3 layers and 4 heads, the model has 3 and 8");
}

TEST(State, OfAModelWithoutKnownShapeIsEmptyAndFine) {
  std::string error;
  const std::string bytes = SaveState({}, 0, 0, remedy::ClipLedger(), {}, {});
  EXPECT_NE(LoadState(bytes, 0, 0, &error), nullptr) << error;
}

}  // namespace
}  // namespace gyrostat::client
