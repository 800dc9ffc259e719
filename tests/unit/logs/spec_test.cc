#include "logs/spec.h"

#include <gtest/gtest.h>

namespace gyrostat::logs {
namespace {

using Sentences = std::vector<std::string>;

TEST(SpecFile, ReadsOurOwn) {
  const SpecRead read = ReadSpecFile(
      R"({"layers": 12, "heads": 8, "kv_heads": 2, "attention": "gqa", "norm_placement": "deepnorm",
          "deepnorm_alpha": 2.5, "qk_norm": null, "attention_bias": false,
          "schedule": {"kind": "noam", "warmup_steps": 400}, "colour": 3})");
  EXPECT_EQ(read.errors, Sentences{});
  EXPECT_EQ(read.unknown, Sentences{"colour"});
  EXPECT_EQ(read.spec.layers, 12u);
  EXPECT_EQ(read.spec.attention, model::Attention::kGqa);
  EXPECT_EQ(read.spec.deepnorm_alpha, 2.5);
  EXPECT_EQ(read.spec.attention_bias, false);
  EXPECT_EQ(read.spec.warmup_steps, 400u);
  EXPECT_EQ(read.spec.qk_norm, model::QkNorm::kUnknown);
}

TEST(SpecFile, SaysWhatCannotBe) {
  const SpecRead read =
      ReadSpecFile(R"({"layers": -1, "heads": 12, "kv_heads": 5, "attention": "some", "head_dim": 0.5})");
  EXPECT_EQ(read.errors, (Sentences{"layers is -1.000000, wanted a whole number from 0 to 1024",
                                    "attention is \"some\", wanted mha, gqa, mqa or mla",
                                    "head_dim is 0.500000, wanted a whole number from 0 to 4294967295",
                                    "heads is 12, wanted a multiple of kv_heads, 5"}));
  EXPECT_EQ(ReadSpecFile("hello").errors[0].substr(0, 23), "line 1: no JSON object:");
  EXPECT_EQ(ReadSpecFile("{\"layers\": 1,\n").errors.size(), 1u);
}

TEST(SpecFile, ReadsHuggingFacesConfigs) {
  const SpecRead llama = ReadSpecFile(
      R"({"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
          "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "torch_dtype": "bfloat16", "hidden_act": "silu"})");
  EXPECT_EQ(llama.kind, "hf-config");
  EXPECT_EQ(llama.errors, Sentences{});
  EXPECT_EQ(llama.spec.attention, model::Attention::kGqa);
  EXPECT_EQ(llama.spec.norm_placement, model::NormPlacement::kPre);
  EXPECT_EQ(llama.spec.norm_eps, 1e-5);
  EXPECT_EQ(llama.spec.compute_dtype, "bf16");
  const SpecRead gpt2 = ReadSpecFile(R"({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12})");
  EXPECT_EQ(gpt2.spec.layers, 12u);
  EXPECT_EQ(gpt2.spec.norm_kind, model::NormKind::kLayernorm);
  const SpecRead gemma = ReadSpecFile(
      R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "num_hidden_layers": 34}})");
  EXPECT_EQ(gemma.spec.norm_placement, model::NormPlacement::kPeri);
  EXPECT_EQ(gemma.spec.layers, 34u);
  EXPECT_EQ(ReadSpecFile(R"({"model_type": "never_seen", "num_hidden_layers": 2})").unknown,
            Sentences{"model_type never_seen"});
}

}  // namespace
}  // namespace gyrostat::logs
