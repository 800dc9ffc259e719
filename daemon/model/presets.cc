#include "model/presets.h"

#include <algorithm>
#include <array>
#include <vector>

namespace gyrostat::model {
namespace {

struct Form {
  NormPlacement placement;
  NormKind norm;
  double eps;
  Attention attention;
  QkNorm qk_norm = QkNorm::kNone;
  bool bias = false;
  const char* activation = "swiglu";
  NormGain gain = NormGain::kPlain;
};

ModelSpec Spec(std::string_view name, const Form& form) {
  ModelSpec spec;
  spec.preset = name;
  spec.norm_placement = form.placement;
  spec.norm_kind = form.norm;
  spec.norm_eps = form.eps;
  spec.norm_gain = form.gain;
  spec.attention = form.attention;
  spec.qk_norm = form.qk_norm;
  spec.attention_bias = form.bias;
  spec.activation = form.activation;
  return spec;
}

ModelSpec Sized(ModelSpec spec, uint32_t layers, uint32_t hidden_size, uint32_t heads, uint32_t vocab_size) {
  spec.layers = layers;
  spec.hidden_size = hidden_size;
  spec.heads = heads;
  spec.vocab_size = vocab_size;
  return spec;
}

ModelSpec Capped(ModelSpec spec, double softcap) {
  spec.logit_softcap = softcap;
  return spec;
}

constexpr auto kLayer = NormKind::kLayernorm, kRms = NormKind::kRmsnorm;

using Types = std::string_view;
constexpr std::array kGpt2 = {Types("gpt2")};
constexpr std::array kLlama = {Types("llama"), Types("mistral"), Types("mixtral"), Types("qwen2"), Types("qwen2_moe"),
                               Types("phi3")};
constexpr std::array kDeepseekV3 = {Types("deepseek_v3"), Types("deepseek_v2")};
constexpr std::array kQwen3 = {Types("qwen3"), Types("qwen3_moe")};
constexpr std::array kKimiK2 = {Types("kimi_k2")};
constexpr std::array kGemma = {Types("gemma")};
constexpr std::array kGemma2 = {Types("gemma2")};
constexpr std::array kGemma3 = {Types("gemma3_text"), Types("gemma3")};
constexpr std::array kOlmo = {Types("olmo")};
constexpr std::array kOlmo2 = {Types("olmo2"), Types("olmo3")};
constexpr std::array kGlm4 = {Types("glm4")};
// Attention and feed-forward in parallel, behind LayerNorm.
constexpr std::array kGptNeox = {Types("gpt_neox"), Types("gptj"), Types("falcon"), Types("phi")};
constexpr std::array kOpt = {Types("opt"), Types("gpt_neo")};
constexpr std::array kBloom = {Types("bloom")};
constexpr std::array kBert = {Types("bert"), Types("roberta"), Types("electra"), Types("deberta")};

// From the models' papers and published configurations.
std::vector<Preset> MakePresets() {
  using A = Attention;
  using P = NormPlacement;
  using Q = QkNorm;
  constexpr NormGain kOffset = NormGain::kUnitOffset;
  return {
      {.name = "gpt2", .spec = Spec("gpt2", {P::kPre, kLayer, 1e-5, A::kMha, Q::kNone, true, "gelu"}),
       .note = "final norm; output projections start 1/sqrt(2L) times smaller", .model_types = kGpt2},
      // Llama 1 and the 7B and 13B of Llama 2 are MHA, the others GQA: the job says which.
      {.name = "llama", .spec = Spec("llama", {P::kPre, kRms, 1e-5, A::kUnknown}), .model_types = kLlama},
      {.name = "deepseek-v3",
       .spec = Sized(Spec("deepseek-v3", {P::kPre, kRms, 1e-6, A::kMla}), 61, 7168, 128, 129280),
       .note = "the latents of Q and of K/V are normalised, which is no QK-norm", .model_types = kDeepseekV3},
      {.name = "qwen3", .spec = Spec("qwen3", {P::kPre, kRms, 1e-6, A::kGqa, Q::kPerHead}), .model_types = kQwen3},
      {.name = "kimi-k2", .spec = Sized(Spec("kimi-k2", {P::kPre, kRms, 1e-6, A::kMla}), 61, 7168, 64, 163840),
       .note = "trained with Muon and QK-Clip, tau 100", .model_types = kKimiK2},
      {.name = "gemma", .spec = Spec("gemma", {P::kPre, kRms, 1e-6, A::kUnknown, Q::kNone, false, "geglu", kOffset}),
       .embedding_norm = true, .note = "embedding times sqrt(d)", .model_types = kGemma},
      {.name = "gemma2",
       .spec = Capped(Spec("gemma2", {P::kPeri, kRms, 1e-6, A::kGqa, Q::kNone, false, "geglu", kOffset}), 50),
       .embedding_norm = true, .note = "embedding times sqrt(d); logits soft-capped at 50", .model_types = kGemma2},
      {.name = "gemma3", .spec = Spec("gemma3", {P::kPeri, kRms, 1e-6, A::kGqa, Q::kPerHead, false, "geglu", kOffset}),
       .embedding_norm = true, .note = "embedding times sqrt(d); hidden states outgrow fp16",
       .model_types = kGemma3},
      {.name = "olmo", .spec = Spec("olmo", {P::kPre, kLayer, 1e-5, A::kMha}), .note = "norms without weights",
       .model_types = kOlmo},
      {.name = "olmo2", .spec = Spec("olmo2", {P::kReordered, kRms, 1e-6, A::kUnknown, Q::kFlattened}),
       .model_types = kOlmo2},
      {.name = "glm4", .spec = Spec("glm4", {P::kPeri, kRms, 1e-5, A::kGqa, Q::kNone, true}), .model_types = kGlm4},
      // Attention and feed-forward in parallel, both from the block's input: the profile laws of pre-norm hold.
      {.name = "gpt-neox", .spec = Spec("gpt-neox", {P::kPre, kLayer, 1e-5, A::kMha, Q::kNone, true, "gelu"}),
       .note = "attention and feed-forward in parallel", .model_types = kGptNeox},
      {.name = "opt", .spec = Spec("opt", {P::kPre, kLayer, 1e-5, A::kMha, Q::kNone, true, "relu"}),
       .model_types = kOpt},
      {.name = "bloom", .spec = Spec("bloom", {P::kPre, kLayer, 1e-5, A::kMha, Q::kNone, true, "gelu"}),
       .embedding_norm = true, .note = "the embedding is normalised", .model_types = kBloom},
      {.name = "transformer-2017",
       .spec = Spec("transformer-2017", {P::kPost, kLayer, 1e-6, A::kMha, Q::kNone, false, "relu"}),
       .stack = Stack::kEncoderDecoder, .embedding_norm = true, .note = "embedding times sqrt(d)"},
      {.name = "bert", .spec = Spec("bert", {P::kPost, kLayer, 1e-12, A::kMha, Q::kNone, true, "gelu"}),
       .stack = Stack::kEncoder, .embedding_norm = true, .model_types = kBert},
      {.name = "cogview",
       .spec = Sized(Spec("cogview", {P::kPeri, kLayer, 1e-5, A::kMha, Q::kNone, true, "gelu"}), 48, 2560, 40, 58219),
       .note = "sandwich norm, and attention scores scaled down before the softmax (PB-relax)"},
      {.name = "deepnet", .spec = Spec("deepnet", {P::kDeepnorm, kLayer, 1e-5, A::kMha, Q::kNone, true, "relu"}),
       .stack = Stack::kEncoderDecoder, .note = "alpha and beta follow from the numbers of layers"},
      {.name = "normformer", .spec = Spec("normformer", {P::kPre, kLayer, 1e-5, A::kMha, Q::kNone, true, "gelu"})},
      {.name = "keel", .spec = Spec("keel", {P::kKeel, kRms, 1e-6, A::kUnknown})},
  };
}

}  // namespace

const char* Token(Stack v) {
  switch (v) {
    case Stack::kDecoder: return "decoder";
    case Stack::kEncoder: return "encoder";
    case Stack::kEncoderDecoder: return "encoder_decoder";
  }
  return "";
}

std::span<const Preset> Presets() {
  static const std::vector<Preset> presets = MakePresets();
  return presets;
}

const Preset* FindPreset(std::string_view name) {
  for (const Preset& preset : Presets())
    if (preset.name == name) return &preset;
  return nullptr;
}

const Preset* PresetOfModelType(std::string_view model_type) {
  for (const Preset& preset : Presets())
    if (std::find(preset.model_types.begin(), preset.model_types.end(), model_type) != preset.model_types.end())
      return &preset;
  return nullptr;
}

ModelSpec Completed(const ModelSpec& spec) {
  const Preset* preset = FindPreset(spec.preset);
  if (preset == nullptr) return spec;
  ModelSpec full = spec;
  const ModelSpec& known = preset->spec;
  const auto fill = [](auto* value, const auto& from, const auto& absent) {
    if (*value == absent) *value = from;
  };
  fill(&full.layers, known.layers, 0u);
  fill(&full.hidden_size, known.hidden_size, 0u);
  if (full.kv_heads == 0) fill(&full.heads, known.heads, 0u);
  fill(&full.vocab_size, known.vocab_size, 0u);
  fill(&full.attention, known.attention, Attention::kUnknown);
  fill(&full.norm_kind, known.norm_kind, NormKind::kUnknown);
  fill(&full.norm_gain, known.norm_gain, NormGain::kUnknown);
  fill(&full.norm_placement, known.norm_placement, NormPlacement::kUnknown);
  fill(&full.qk_norm, known.qk_norm, QkNorm::kUnknown);
  fill(&full.activation, known.activation, std::string());
  if (!full.norm_eps) full.norm_eps = known.norm_eps;
  if (!full.logit_softcap) full.logit_softcap = known.logit_softcap;
  if (!full.attention_bias) full.attention_bias = known.attention_bias;
  return full;
}

}  // namespace gyrostat::model
