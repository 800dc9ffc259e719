#include "ctl/spec_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/presets.h"
#include "support/paths.h"

namespace gyrostat::ctl {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

TEST(SpecFile, APresetIsKnownByName) {
  const auto spec = ReadModel("gpt2");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->preset, "gpt2");
  EXPECT_EQ(spec->norm_placement, model::NormPlacement::kPre);
}

TEST(SpecFile, WhatIsNeitherIsToldWithThePresets) {
  const auto spec = ReadModel("no-such-model");
  ASSERT_FALSE(spec.ok());
  EXPECT_THAT(spec.status().message(), HasSubstr("no-such-model: "));
  EXPECT_THAT(spec.status().message(), HasSubstr("wanted a file or one of gpt2, "));
}

// A config.json of a family: its preset, what is normal for it, what it is prone to and what helps.

struct Family {
  const char *file, *preset, *placement, *norm_kind, *attention, *qk_norm;
  uint32_t layers, heads, vocab_size;
  std::vector<std::string> prone;  // failure=what is recommended, likeliest first.
};

const std::vector<Family>& Families() {
  static const std::vector<Family> families = {
      {"gpt2", "gpt2", "pre", "layernorm", "mha", "none", 12, 12, 50257,
       {"attention_logits=qk_clip", "half_overflow=lr_scale", "gradient_spikes=", "dead_depth=", "output_logits="}},
      {"llama", "llama", "pre", "rmsnorm", "gqa", "none", 32, 32, 128256,
       {"attention_logits=qk_clip", "gradient_spikes=", "dead_depth=", "output_logits="}},
      {"qwen3", "qwen3", "pre", "rmsnorm", "gqa", "per_head", 28, 16, 151936,
       {"gradient_spikes=", "dead_depth=", "output_logits="}},
      {"gemma2", "gemma2", "peri", "rmsnorm", "gqa", "none", 26, 8, 256000,
       {"attention_logits=qk_clip", "output_logits=", "gradient_spikes="}},
      {"gemma3", "gemma3", "peri", "rmsnorm", "gqa", "per_head", 34, 8, 262208, {"output_logits=", "gradient_spikes="}},
      {"olmo2", "olmo2", "reordered", "rmsnorm", "mha", "flattened", 32, 32, 100352,
       {"output_logits=", "gradient_spikes="}},
      {"deepseek_v3", "deepseek-v3", "pre", "rmsnorm", "mla", "none", 61, 128, 129280,
       {"attention_logits=qk_clip", "gradient_spikes=", "dead_depth=", "output_logits="}},
      {"gpt_neox", "gpt-neox", "pre", "layernorm", "mha", "none", 16, 8, 50304,
       {"attention_logits=qk_clip", "half_overflow=lr_scale", "gradient_spikes=", "dead_depth=", "output_logits="}},
      {"bert", "bert", "post", "layernorm", "mha", "none", 12, 12, 30522,
       {"post_norm_collapse=warmup_extension", "slow_divergence=deepnorm_alpha", "attention_logits=qk_clip"}},
      {"glm4", "glm4", "peri", "rmsnorm", "gqa", "none", 40, 32, 151552,
       {"attention_logits=qk_clip", "output_logits=", "gradient_spikes="}},
  };
  return families;
}

class CheckModelOf : public ::testing::TestWithParam<size_t> {
 protected:
  std::string Run(bool json) {
    request_.command = Command::kCheckModel;
    request_.json = json;
    request_.file = std::string(testing::kSourceDir) + "/tests/corpus/hf_config/" + family_.file + ".json";
    std::ostringstream out, err;
    const Console console{out, err, base::SystemClock(), {}, false, [] { return Size(); }};
    EXPECT_EQ(CheckModel(request_, console), kDone) << err.str();
    return out.str();
  }

  const Family& family_ = Families()[GetParam()];
  Request request_;
};

TEST_P(CheckModelOf, NamesThePresetAndReadsTheSizes) {
  const ordered_json seen = ordered_json::parse(Run(true));
  EXPECT_EQ(seen["kind"], "hf-config");
  EXPECT_TRUE(seen["valid"]);
  const ordered_json& model = seen["model"];
  EXPECT_EQ(model["preset"], family_.preset);
  EXPECT_EQ(model["norm_placement"], family_.placement);
  EXPECT_EQ(model["norm_kind"], family_.norm_kind);
  EXPECT_EQ(model["attention"], family_.attention);
  EXPECT_EQ(model["qk_norm"], family_.qk_norm);
  EXPECT_EQ(model["layers"], family_.layers);
  EXPECT_EQ(model["heads"], family_.heads);
  EXPECT_EQ(model["vocab_size"], family_.vocab_size);
  EXPECT_FALSE(model["norm_eps"].is_null());
  const bool offset = std::string(family_.preset).starts_with("gemma");
  EXPECT_EQ(model["norm_gain"], offset ? "unit_offset" : "plain");
  const bool capped = std::string(family_.preset) == "gemma2";
  EXPECT_EQ(model["logit_softcap"], capped ? ordered_json(50.0) : ordered_json(nullptr));
}

TEST_P(CheckModelOf, SaysWhatItIsProneToAndWhatHelps) {
  std::vector<std::string> prone;
  const ordered_json seen = ordered_json::parse(Run(true));
  for (const ordered_json& each : seen["prone"]) {
    EXPECT_FALSE(each["says"].get<std::string>().empty());
    EXPECT_FALSE(each["why"].get<std::string>().empty());
    prone.push_back(each["failure"].get<std::string>() + "=" +
                    (each["recommend"].is_null() ? "" : each["recommend"].get<std::string>()));
  }
  EXPECT_EQ(prone, family_.prone);
}

TEST_P(CheckModelOf, TellsPeopleTheSame) {
  const std::string text = Run(false);
  EXPECT_NE(text.find("Preset " + std::string(family_.preset) + ", a"), std::string::npos) << text;
  EXPECT_NE(text.find("Placement " + std::string(family_.placement) + ", y = "), std::string::npos) << text;
  size_t at = text.find("It is prone to, likeliest first:");
  ASSERT_NE(at, std::string::npos) << text;
  for (const std::string& each : family_.prone) {
    const std::string kind = each.substr(each.find('=') + 1);
    at = text.find(kind.empty() ? ": no intervention." : ": " + kind + ".", at + 1);
    EXPECT_NE(at, std::string::npos) << each << " in\n" << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CheckModelOf, ::testing::Range(size_t{0}, size_t{10}), [](const auto& index) {
  return std::string(Families()[index.param].file);
});

TEST(CheckModelOfFamilies, EveryPresetWithAModelTypeIsThere) {
  std::vector<std::string> with_file;
  for (const Family& each : Families()) with_file.emplace_back(each.preset);
  // Of the same shape as one that is: no file of their own.
  for (const char* each : {"kimi-k2", "gemma", "olmo", "opt", "bloom"}) with_file.emplace_back(each);
  for (const model::Preset& preset : model::Presets())
    EXPECT_EQ(std::count(with_file.begin(), with_file.end(), preset.name), preset.model_types.empty() ? 0 : 1)
        << preset.name;
}

}  // namespace
}  // namespace gyrostat::ctl
