#include <gtest/gtest.h>

#include "model/finding.h"
#include "model/intervention.h"
#include "model/model_spec.h"

namespace gyrostat::model {
namespace {

TEST(Tokens, GoThereAndBack) {
  for (int i = 1; i <= static_cast<int>(InterventionKind::kCollect); ++i) {
    const auto kind = static_cast<InterventionKind>(i);
    EXPECT_EQ(InterventionKindOf(Token(kind)), kind);
  }
  for (const Mode mode : {Mode::kObserve, Mode::kAdvise, Mode::kAct}) EXPECT_EQ(ModeOf(Token(mode)), mode);
  EXPECT_EQ(NormPlacementOf("layernorm_scaling"), NormPlacement::kLayernormScaling);
  EXPECT_EQ(AttentionOf("nonsense"), Attention::kUnknown);
  EXPECT_FALSE(ModeOf("nonsense").has_value());
}

TEST(Signals, AreNumberedOnceAndFoundByName) {
  for (const SignalInfo& info : Signals()) {
    EXPECT_EQ(FindSignal(info.name), &info);
    EXPECT_EQ(FindSignal(info.signal), &info);
    EXPECT_NE(IsScalar(info.signal), IsArray(info.signal));
    EXPECT_EQ(IsScalar(info.signal), info.shape == Shape::kScalar) << info.name;
  }
}

TEST(Names, AreCheckedAgainstTheAlphabetAndLength) {
  EXPECT_TRUE(IsValidName("gpt-4:run_1.0"));
  EXPECT_FALSE(IsValidName(""));
  EXPECT_FALSE(IsValidName("a b"));
  EXPECT_FALSE(IsValidName("a\n"));
  EXPECT_FALSE(IsValidName(std::string(129, 'a')));
  EXPECT_TRUE(IsValidName(std::string(128, 'a')));
}

TEST(Id128, ReadsOnlyWhatItWrites) {
  const Id128 id = *Id128::FromHex("00112233445566778899aabbccddeeff");
  EXPECT_EQ(id.ToHex(), "00112233445566778899aabbccddeeff");
  EXPECT_EQ(Id128::FromBytes(id.AsBytes()), id);
  EXPECT_FALSE(Id128::FromHex("0011").has_value());
  EXPECT_FALSE(Id128::FromHex("zz112233445566778899aabbccddeeff").has_value());
}

}  // namespace
}  // namespace gyrostat::model
