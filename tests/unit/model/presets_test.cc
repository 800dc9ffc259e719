#include "model/presets.h"

#include <gtest/gtest.h>

#include <set>

#include "model/architecture.h"

namespace gyrostat::model {
namespace {

TEST(Presets, AreTheOnesOfTheDesignAndEachHasAnArchitecture) {
  std::set<std::string_view> names;
  for (const Preset& preset : Presets()) {
    EXPECT_TRUE(names.insert(preset.name).second) << preset.name;
    EXPECT_EQ(preset.spec.preset, preset.name);
    EXPECT_NE(ArchitectureOf(preset.spec).name, "unknown") << preset.name;
    EXPECT_TRUE(preset.spec.norm_eps) << preset.name;
  }
  for (const char* name : {"gpt2", "llama", "deepseek-v3", "qwen3", "kimi-k2", "gemma2", "gemma3", "olmo2", "glm4",
                           "gpt-neox", "transformer-2017", "bert", "cogview", "deepnet", "keel"})
    EXPECT_EQ(names.count(name), 1u) << name;
  EXPECT_EQ(FindPreset("nonsense"), nullptr);
}

TEST(Presets, FillOnlyWhatTheJobLeftOpen) {
  ModelSpec spec;
  spec.preset = "kimi-k2";
  spec.layers = 2;
  spec.qk_norm = QkNorm::kPerHead;
  const ModelSpec full = Completed(spec);
  EXPECT_EQ(full.layers, 2u);
  EXPECT_EQ(full.qk_norm, QkNorm::kPerHead);
  EXPECT_EQ(full.heads, 64u);
  EXPECT_EQ(full.norm_placement, NormPlacement::kPre);
  EXPECT_EQ(full.attention, Attention::kMla);
  EXPECT_EQ(full.norm_eps, 1e-6);
}

TEST(Presets, AModelTypeIsDescribedByOne) {
  std::set<std::string_view> types;
  for (const Preset& preset : Presets())
    for (const std::string_view type : preset.model_types) {
      EXPECT_TRUE(types.insert(type).second) << type;
      EXPECT_EQ(PresetOfModelType(type), &preset);
    }
  EXPECT_EQ(PresetOfModelType("mistral"), FindPreset("llama"));
  EXPECT_EQ(PresetOfModelType("never_seen"), nullptr);
}

TEST(Presets, AStrangerFillsNothing) {
  ModelSpec spec;
  EXPECT_EQ(Completed(spec), spec);
  spec.preset = "mine";
  EXPECT_EQ(Completed(spec), spec);
}

}  // namespace
}  // namespace gyrostat::model
