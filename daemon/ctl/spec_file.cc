#include "ctl/spec_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "ctl/text.h"
#include "json/values.h"
#include "logs/spec.h"
#include "model/architecture.h"
#include "model/presets.h"

namespace gyrostat::ctl {
namespace {

using json::OrNull, json::Value;

constexpr size_t kFileBytesMax = size_t{16} << 20;

absl::StatusOr<logs::SpecRead> ReadFile(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return absl::NotFoundError(file + ": " + std::strerror(errno));
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  if (in.bad()) return absl::DataLossError(file + ": it cannot be read; wanted a JSON file");
  if (bytes.size() > kFileBytesMax) return absl::InvalidArgumentError(file + ": it is larger than 16 MiB");
  return logs::ReadSpecFile(bytes);
}

Value Word(const std::string& text) { return text.empty() ? Value(nullptr) : Value(text); }
Value Count(uint64_t count) { return count == 0 ? Value(nullptr) : Value(count); }

std::string PresetNames() {
  std::string names;
  for (const model::Preset& each : model::Presets()) names += (names.empty() ? "" : ", ") + std::string(each.name);
  return names;
}

// All fields, in the order of gyrostat JSONL; null: not known.
Value Fields(const model::ModelSpec& spec) {
  Value out;
  out["preset"] = Word(spec.preset);
  out["layers"] = Count(spec.layers);
  out["hidden_size"] = Count(spec.hidden_size);
  out["heads"] = Count(spec.heads);
  out["kv_heads"] = Count(spec.kv_heads);
  out["head_dim"] = Count(spec.head_dim);
  out["attention"] = Word(model::Token(spec.attention));
  out["norm_kind"] = Word(model::Token(spec.norm_kind));
  out["norm_eps"] = OrNull(spec.norm_eps);
  out["norm_gain"] = Word(model::Token(spec.norm_gain));
  out["norm_placement"] = Word(model::Token(spec.norm_placement));
  out["deepnorm_alpha"] = OrNull(spec.deepnorm_alpha);
  out["deepnorm_beta"] = OrNull(spec.deepnorm_beta);
  out["qk_norm"] = Word(model::Token(spec.qk_norm));
  out["logit_softcap"] = OrNull(spec.logit_softcap);
  out["attention_bias"] = OrNull(spec.attention_bias);
  out["activation"] = Word(spec.activation);
  out["compute_dtype"] = Word(spec.compute_dtype);
  out["master_fp32"] = OrNull(spec.master_fp32);
  out["optimizer"] = Word(spec.optimizer);
  out["vocab_size"] = Count(spec.vocab_size);
  out["schedule"] = {{"kind", Word(model::Token(spec.schedule_kind))},
                     {"peak", OrNull(spec.schedule_peak)},
                     {"warmup_steps", OrNull(spec.warmup_steps)},
                     {"total_steps", OrNull(spec.total_steps)}};
  return out;
}

// What somebody who judges by this spec goes without.
std::vector<std::string> Consequences(const model::ModelSpec& spec) {
  std::vector<std::string> out;
  if (spec.layers == 0) out.emplace_back("layers is not known: arrays of any length are taken, and layers not named");
  if (spec.heads == 0) out.emplace_back("heads is not known: heads with runaway logits cannot be named");
  if (spec.norm_placement == model::NormPlacement::kUnknown)
    out.emplace_back(
        "norm_placement is not known: rules that depend on it (depth and gradient profiles, warm-up) rest");
  if (spec.qk_norm == model::QkNorm::kUnknown) out.emplace_back("qk_norm is not known: it is taken to be none");
  if (spec.compute_dtype.empty()) out.emplace_back("compute_dtype is not known: no overflow can be forecast");
  return out;
}

// A failure that this model is prone to, and what helps.
struct Proneness {
  model::Failure failure;
  model::Advice advice;
};

// Likeliest first; empty where the placement is not known.
std::vector<Proneness> PronenessOf(const model::ModelSpec& spec) {
  std::vector<Proneness> out;
  for (const model::Failure each : model::ArchitectureOf(spec).prone)
    if (model::IsProne(spec, each)) out.push_back({each, model::AdviceFor(spec, each)});
  return out;
}

Value PronenessObjects(const model::ModelSpec& spec) {
  Value out = Value::array();
  for (const Proneness& each : PronenessOf(spec))
    out.push_back({{"failure", model::Token(each.failure)},
                   {"says", std::string(model::Describe(each.failure))},
                   {"recommend", each.advice.kind ? Value(model::Token(*each.advice.kind)) : Value(nullptr)},
                   {"why", std::string(each.advice.why)}});
  return out;
}

std::string WithCapital(std::string_view clause) {
  std::string text(clause);
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

// What is normal for the model, what it is prone to and what helps, for people.
void PrintArchitecture(const model::ModelSpec& spec, const Console& console) {
  const auto say = [&console](const std::string& text, size_t indent) {
    console.out << Wrap(console.style, text, indent);
  };
  if (const model::Preset* preset = model::FindPreset(spec.preset)) {
    const char* article = preset->stack == model::Stack::kDecoder ? ", a " : ", an ";
    std::string text = "Preset " + std::string(preset->name) + article + model::Token(preset->stack) + " stack";
    if (!preset->note.empty()) text += ": " + std::string(preset->note);
    say(text + ".", 0);
  }
  const model::Architecture& architecture = model::ArchitectureOf(spec);
  if (architecture.placement == model::NormPlacement::kUnknown) return;
  std::string text = "Placement " + std::string(model::Token(architecture.placement)) + ", " +
                     std::string(architecture.formula) + " (" + std::string(architecture.source) +
                     "). Mean squares of the stream over depth: " + model::Token(architecture.stream) +
                     " when fresh, " + model::Token(architecture.stream_trained) + " when trained.";
  if (architecture.gradient != model::GradientLaw::kUnknown)
    text += std::string(" Gradients over depth: ") + model::Token(architecture.gradient) + ".";
  say(text, 0);
  const std::vector<Proneness> prone = PronenessOf(spec);
  if (!prone.empty()) console.out << "\nIt is prone to, likeliest first:\n";
  for (const Proneness& each : prone) {
    const std::string what = each.advice.kind ? model::Token(*each.advice.kind) : "no intervention";
    say("- " + WithCapital(model::Describe(each.failure)) + ": " + what + ". " + std::string(each.advice.why), 2);
  }
}

void PrintObject(const std::string& file, const logs::SpecRead& read, const std::vector<std::string>& notes,
                 const Console& console) {
  Value out;
  out["file"] = file;
  out["valid"] = read.errors.empty();
  out["kind"] = Word(read.kind);
  out["model"] = Fields(read.spec);
  out["prone"] = PronenessObjects(read.spec);
  out["errors"] = read.errors;
  out["warnings"] = notes;
  console.out << out.dump(-1, ' ', false, Value::error_handler_t::replace) << "\n";
}

}  // namespace

absl::StatusOr<model::ModelSpec> ReadModel(const std::string& preset_or_file) {
  if (const model::Preset* preset = model::FindPreset(preset_or_file)) return model::Completed(preset->spec);
  const std::string& file = preset_or_file;
  const auto read = ReadFile(file);
  if (absl::IsNotFound(read.status()))
    return absl::NotFoundError(std::string(read.status().message()) + "; wanted a file or one of " + PresetNames());
  if (!read.ok()) return read.status();
  if (read->errors.empty()) return read->spec;
  return absl::InvalidArgumentError(file + ": " + read->errors[0]);
}

int CheckModel(const Request& request, const Console& console) {
  auto read = ReadFile(request.file);
  if (!read.ok()) {
    if (!request.json) {
      console.err << "gyrostatctl: " << Escape(std::string(read.status().message())) << "\n";
      return kRefused;
    }
    read = logs::SpecRead();
    read->errors.push_back("it cannot be read");
  }
  std::vector<std::string> notes;
  for (const std::string& each : read->unknown) notes.push_back(each + " is not known here, and means nothing");
  if (read->errors.empty())
    for (std::string& each : Consequences(read->spec)) notes.push_back(std::move(each));
  const int code = read->errors.empty() ? kDone : kRefused;
  if (request.json) {
    PrintObject(request.file, *read, notes, console);
    return code;
  }
  for (const std::string& each : read->errors)
    console.err << "gyrostatctl: " << Escape(request.file) << ": " << Escape(each) << "\n";
  if (code != kDone) return code;
  Table table({{"field"}, {"value"}});
  const Value fields = Fields(read->spec);
  for (const auto& [name, value] : fields.items()) {
    if (value.is_object())
      for (const auto& [inner, each] : value.items())
        table.Row({{name + "/" + inner},
                   {each.is_null() ? "not known" : each.dump(), each.is_null() ? Tint::kDim : Tint::kNone}});
    else
      table.Row({{name}, {value.is_null() ? "not known" : value.dump(), value.is_null() ? Tint::kDim : Tint::kNone}});
  }
  console.out << Escape(request.file) << " is a good model spec ("
              << (read->kind == "hf-config" ? "a Hugging Face config.json" : "gyrostat's own") << ").\n\n"
              << table.Render(console.style) << "\n";
  PrintArchitecture(read->spec, console);
  if (!notes.empty()) console.out << "\n";
  for (const std::string& each : notes) console.out << Wrap(console.style, "Note: " + each + ".", 0);
  return code;
}

}  // namespace gyrostat::ctl
