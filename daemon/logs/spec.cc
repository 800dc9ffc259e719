#include "logs/spec.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "logs/json_record.h"
#include "logs/json_scan.h"
#include "logs/number.h"
#include "model/presets.h"

namespace gyrostat::logs {
namespace {

// One key of a spec while it is read.
struct Entry {
  const Field& field;
  SpecRead* out;

  std::string Seen() const { return field.text.empty() ? std::to_string(field.value) : "\"" + field.text + "\""; }
  void Refuse(const std::string& wanted) const {
    out->errors.push_back(field.key + " is " + Seen() + ", wanted " + wanted);
  }

  template <class Number>
  void Count(uint64_t max, Number* value) const {
    const auto whole = StepOf(field.value);
    if (whole && *whole >= 0 && static_cast<uint64_t>(*whole) <= max) *value = static_cast<Number>(*whole);
    else Refuse("a whole number from 0 to " + std::to_string(max));
  }
  void Real(std::optional<double>* value) const {
    if (std::isfinite(field.value) && !model::IsAbsent(field.value)) *value = field.value;
    else Refuse("a number");
  }
  void Flag(std::optional<bool>* value) const {
    if (field.text == "true" || field.text == "false") *value = field.text == "true";
    else Refuse("true or false");
  }
  void Text(std::string* value) const {
    if (!field.text.empty()) *value = field.text.substr(0, 128);
    else Refuse("a word");
  }
  template <class Enum, Enum (*Parse)(const std::string&)>
  void Token(const char* wanted, Enum* value) const {
    *value = Parse(field.text);
    if (*value == Enum::kUnknown && field.text != "unknown") Refuse(wanted);
  }
};

constexpr uint64_t kCountMax = UINT32_MAX;
constexpr uint64_t kStepsMax = uint64_t{1} << 53;

using Reader = void (*)(const Entry&, model::ModelSpec*);
struct Known {
  std::string_view key;
  Reader read;
};

const Known kSpec[] = {
    {"layers", [](const Entry& e, model::ModelSpec* s) { e.Count(model::kLayersMax, &s->layers); }},
    {"hidden_size", [](const Entry& e, model::ModelSpec* s) { e.Count(kCountMax, &s->hidden_size); }},
    {"heads", [](const Entry& e, model::ModelSpec* s) { e.Count(model::kHeadsMax, &s->heads); }},
    {"kv_heads", [](const Entry& e, model::ModelSpec* s) { e.Count(model::kHeadsMax, &s->kv_heads); }},
    {"head_dim", [](const Entry& e, model::ModelSpec* s) { e.Count(kCountMax, &s->head_dim); }},
    {"vocab_size", [](const Entry& e, model::ModelSpec* s) { e.Count(kCountMax, &s->vocab_size); }},
    {"attention",
     [](const Entry& e, model::ModelSpec* s) {
       e.Token<model::Attention, model::AttentionOf>("mha, gqa, mqa or mla", &s->attention);
     }},
    {"norm_kind",
     [](const Entry& e, model::ModelSpec* s) {
       e.Token<model::NormKind, model::NormKindOf>("layernorm or rmsnorm", &s->norm_kind);
     }},
    {"norm_placement",
     [](const Entry& e, model::ModelSpec* s) {
       e.Token<model::NormPlacement, model::NormPlacementOf>(
           "post, pre, peri, reordered, deepnorm, mix, hybrid, layernorm_scaling, residual_dual or keel",
           &s->norm_placement);
     }},
    {"norm_gain",
     [](const Entry& e, model::ModelSpec* s) {
       e.Token<model::NormGain, model::NormGainOf>("plain or unit_offset", &s->norm_gain);
     }},
    {"qk_norm",
     [](const Entry& e, model::ModelSpec* s) {
       e.Token<model::QkNorm, model::QkNormOf>("none, per_head or flattened", &s->qk_norm);
     }},
    {"schedule/kind",
     [](const Entry& e, model::ModelSpec* s) {
       e.Token<model::ScheduleKind, model::ScheduleKindOf>("const, linear, cosine, wsd or noam", &s->schedule_kind);
     }},
    {"norm_eps", [](const Entry& e, model::ModelSpec* s) { e.Real(&s->norm_eps); }},
    {"deepnorm_alpha", [](const Entry& e, model::ModelSpec* s) { e.Real(&s->deepnorm_alpha); }},
    {"deepnorm_beta", [](const Entry& e, model::ModelSpec* s) { e.Real(&s->deepnorm_beta); }},
    {"logit_softcap", [](const Entry& e, model::ModelSpec* s) { e.Real(&s->logit_softcap); }},
    {"schedule/peak", [](const Entry& e, model::ModelSpec* s) { e.Real(&s->schedule_peak); }},
    {"attention_bias", [](const Entry& e, model::ModelSpec* s) { e.Flag(&s->attention_bias); }},
    {"master_fp32", [](const Entry& e, model::ModelSpec* s) { e.Flag(&s->master_fp32); }},
    {"activation", [](const Entry& e, model::ModelSpec* s) { e.Text(&s->activation); }},
    {"compute_dtype", [](const Entry& e, model::ModelSpec* s) { e.Text(&s->compute_dtype); }},
    {"optimizer", [](const Entry& e, model::ModelSpec* s) { e.Text(&s->optimizer); }},
    {"preset", [](const Entry& e, model::ModelSpec* s) { e.Text(&s->preset); }},
    {"schedule/warmup_steps",
     [](const Entry& e, model::ModelSpec* s) {
       uint64_t steps = 0;
       e.Count(kStepsMax, &steps);
       s->warmup_steps = steps;
     }},
    {"schedule/total_steps",
     [](const Entry& e, model::ModelSpec* s) {
       uint64_t steps = 0;
       e.Count(kStepsMax, &steps);
       s->total_steps = steps;
     }},
};

bool IsNull(const Field& field) {
  return model::IsAbsent(field.value) && field.text.empty() && field.values.empty();
}

const Field* Find(const Record& record, std::string_view key) {
  for (size_t i = 0; i < record.size(); ++i)
    if (record[i].key == key && !IsNull(record[i])) return &record[i];
  return nullptr;
}

// config.json: several names for one thing.
constexpr std::pair<std::string_view, std::string_view> kConfig[] = {
    {"num_hidden_layers", "layers"}, {"n_layer", "layers"}, {"num_layers", "layers"},
    {"hidden_size", "hidden_size"}, {"n_embd", "hidden_size"}, {"d_model", "hidden_size"},
    {"num_attention_heads", "heads"}, {"n_head", "heads"}, {"num_key_value_heads", "kv_heads"},
    {"head_dim", "head_dim"}, {"vocab_size", "vocab_size"}, {"attention_bias", "attention_bias"},
    {"rms_norm_eps", "norm_eps"}, {"layer_norm_eps", "norm_eps"}, {"layer_norm_epsilon", "norm_eps"},
    {"hidden_act", "activation"}, {"hidden_activation", "activation"}, {"activation_function", "activation"},
    {"torch_dtype", "compute_dtype"}, {"dtype", "compute_dtype"}, {"attn_logit_softcapping", "logit_softcap"}};

model::Attention AttentionFrom(const Record& config, const model::ModelSpec& spec, const std::string& prefix) {
  if (Find(config, prefix + "kv_lora_rank") != nullptr) return model::Attention::kMla;
  if (spec.heads == 0) return model::Attention::kUnknown;
  if (spec.kv_heads == 0 || spec.kv_heads == spec.heads) return model::Attention::kMha;
  return spec.kv_heads == 1 ? model::Attention::kMqa : model::Attention::kGqa;
}

SpecRead ReadConfig(const Record& config, const std::string& prefix) {
  SpecRead out;
  out.kind = "hf-config";
  for (const auto& [theirs, ours] : kConfig) {
    const Field* field = Find(config, prefix + std::string(theirs));
    if (field == nullptr) continue;
    for (const Known& known : kSpec)
      if (known.key == ours) known.read({*field, &out}, &out.spec);
  }
  model::ModelSpec& spec = out.spec;
  if (const Field* type = Find(config, prefix + "model_type"); type != nullptr) {
    if (const model::Preset* preset = model::PresetOfModelType(type->text)) spec.preset = preset->name;
    else out.unknown.push_back("model_type " + type->text);
  }
  if (const Field* flag = Find(config, prefix + "use_qk_norm"); flag != nullptr && flag->text == "true")
    spec.qk_norm = model::QkNorm::kPerHead;
  spec.attention = AttentionFrom(config, spec, prefix);
  if (spec.compute_dtype == "bfloat16") spec.compute_dtype = "bf16";
  if (spec.compute_dtype == "float16") spec.compute_dtype = "fp16";
  if (spec.compute_dtype == "float32") spec.compute_dtype = "fp32";
  spec = model::Completed(spec);  // What a config.json does not say and its model_type does.
  return out;
}

}  // namespace

SpecRead ReadSpec(const Record& record, std::string_view prefix) {
  SpecRead out;
  out.kind = "gyrostat";
  for (size_t i = 0; i < record.size(); ++i) {
    const Field& field = record[i];
    if (field.key.compare(0, prefix.size(), prefix) != 0 || IsNull(field)) continue;
    const std::string_view key = std::string_view(field.key).substr(prefix.size());
    const auto* known = std::ranges::find(kSpec, key, &Known::key);
    if (known != std::end(kSpec)) known->read({field, &out}, &out.spec);
    else out.unknown.emplace_back(key);
  }
  return out;
}

model::AttnLogitInfo ReadAttnLogit(const Record& record) {
  model::AttnLogitInfo info;
  for (size_t i = 0; i < record.size(); ++i) {
    const Field& field = record[i];
    if (field.key == "attn_logit/kind") info.kind = model::LogitKindOf(field.text);
    if (field.key == "attn_logit/scaled") info.scaled = field.text == "true";
    if (field.key == "attn_logit/masked") info.masked = field.text == "true";
    if (field.key == "attn_logit/with_bias") info.with_bias = field.text == "true";
    if (field.key == "attn_logit/pre_cap") info.pre_cap = field.text == "true";
  }
  return info;
}

void CheckSpec(const model::ModelSpec& spec, std::vector<std::string>* errors) {
  const auto number = [](uint64_t n) { return std::to_string(n); };
  if (spec.heads > 0 && spec.kv_heads > 0 && spec.heads % spec.kv_heads != 0)
    errors->push_back("heads is " + number(spec.heads) + ", wanted a multiple of kv_heads, " + number(spec.kv_heads));
  if (spec.heads > 0 && spec.hidden_size > 0 && spec.head_dim == 0 && spec.hidden_size % spec.heads != 0)
    errors->push_back("hidden_size is " + number(spec.hidden_size) + ", wanted a multiple of heads, " +
                      number(spec.heads) + ", or head_dim");
  if (spec.attention == model::Attention::kMqa && spec.kv_heads > 1)
    errors->push_back("attention is mqa with kv_heads " + number(spec.kv_heads) + ", wanted 1");
  if (spec.attention == model::Attention::kMha && spec.kv_heads > 0 && spec.kv_heads != spec.heads)
    errors->push_back("attention is mha with kv_heads " + number(spec.kv_heads) + " of " + number(spec.heads) +
                      " heads, wanted as many, or gqa");
  if (spec.warmup_steps && spec.total_steps && *spec.warmup_steps > *spec.total_steps)
    errors->push_back("schedule/warmup_steps is " + number(*spec.warmup_steps) + ", wanted at most total_steps, " +
                      number(*spec.total_steps));
}

SpecRead ReadSpecFile(const std::string& bytes) {
  RecordBuilder builder;
  JsonScanner scanner(&builder);
  const size_t used = scanner.Feed(bytes, true);
  SpecRead out;
  if (scanner.failed() || !scanner.AtTop() || used == 0) {
    const auto line = 1 + std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(used), '\n');
    out.errors.push_back("line " + std::to_string(line) + ": no JSON object: " +
                         (scanner.failed() ? scanner.error() : "the file ends too early"));
    return out;
  }
  const Record& record = builder.record;
  if (Find(record, "text_config/model_type") != nullptr) {
    out = ReadConfig(record, "text_config/");
  } else if (Find(record, "model_type") != nullptr || Find(record, "num_hidden_layers") != nullptr) {
    out = ReadConfig(record, "");
  } else {
    out = ReadSpec(record, IsHeader(record) ? "model/" : "");
  }
  CheckSpec(out.spec, &out.errors);
  return out;
}

}  // namespace gyrostat::logs
