#include "support/recorded_run.h"

#include <zlib.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace gyrostat::testing {
namespace {

using nlohmann::json;

// Decompresses, or copies what is not compressed.
bool ReadAll(const std::string& path, std::string* text) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  std::array<char, 65536> block;
  int got = 0;
  while ((got = gzread(file, block.data(), block.size())) > 0) text->append(block.data(), static_cast<size_t>(got));
  return gzclose(file) == Z_OK && got == 0;
}

double Number(const json& value) {
  if (value.is_null()) return static_cast<double>(model::kAbsent);
  if (!value.is_string()) return value.get<double>();
  const auto text = value.get<std::string>();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

void Append(const json& value, std::vector<float>* out) {
  if (!value.is_array()) {
    out->push_back(static_cast<float>(Number(value)));
    return;
  }
  for (const json& item : value) Append(item, out);
}

std::string Text(const json& object, const char* key) {
  return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : std::string();
}

void ReadSpec(const json& object, model::ModelSpec* spec) {
  const auto count = [&object](const char* key) {
    return object.contains(key) && object[key].is_number() ? object[key].get<uint32_t>() : 0u;
  };
  spec->layers = count("layers");
  spec->heads = count("heads");
  spec->kv_heads = count("kv_heads");
  spec->hidden_size = count("hidden_size");
  spec->attention = model::AttentionOf(Text(object, "attention"));
  spec->norm_placement = model::NormPlacementOf(Text(object, "norm_placement"));
  spec->qk_norm = model::QkNormOf(Text(object, "qk_norm"));
  spec->norm_kind = model::NormKindOf(Text(object, "norm_kind"));
  spec->compute_dtype = Text(object, "compute_dtype");
  spec->preset = Text(object, "preset");
  if (object.contains("deepnorm") && object["deepnorm"].is_object()) {
    spec->deepnorm_alpha = object["deepnorm"].value("alpha", 1.0);
    spec->deepnorm_beta = object["deepnorm"].value("beta", 1.0);
  }
  if (object.contains("schedule") && object["schedule"].is_object()) {
    const json& schedule = object["schedule"];
    spec->schedule_kind = model::ScheduleKindOf(Text(schedule, "kind"));
    const json steps = schedule.value("warmup_steps", json());
    if (steps.is_number_unsigned()) spec->warmup_steps = steps.get<uint64_t>();
  }
}

model::Report ReadReport(const json& object, uint64_t sequence, model::LogitKind kind) {
  model::Report report;
  report.sequence = sequence;
  report.step = object.at("step").get<model::Step>();
  report.boundary = static_cast<model::Boundary>(report.step);
  report.attn_logit_kind = kind;
  for (const model::SignalInfo& info : model::Signals()) {
    const std::string name(info.name);
    if (!object.contains(name)) continue;
    if (model::IsScalar(info.signal))
      report.SetScalar(info.signal, Number(object[name]));
    else
      Append(object[name], &report.MutableArray(info.signal));
  }
  return report;
}

}  // namespace

RecordedRun ReadRecordedRun(const std::string& path, std::string* error) {
  RecordedRun run;
  run.name = path.substr(path.rfind('/') + 1);
  std::string text;
  if (!ReadAll(path, &text)) {
    *error = path + ": cannot be read";
    return {};
  }
  model::LogitKind kind = model::LogitKind::kUnknown;
  size_t line = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    ++line;
    const json object = json::parse(text.data() + at, text.data() + end, nullptr, /*allow_exceptions=*/false);
    at = end + 1;
    if (!object.is_object() || !(object.contains("gyrostat") || object.contains("step"))) {
      *error = path + ":" + std::to_string(line) + ": wanted an object with `step`, or the header";
      return {};
    }
    if (object.contains("gyrostat")) {
      if (object.contains("model")) ReadSpec(object["model"], &run.spec);
      if (object.contains("attn_logit")) kind = model::LogitKindOf(Text(object["attn_logit"], "kind"));
    } else {
      run.reports.push_back(ReadReport(object, run.reports.size() + 1, kind));
    }
  }
  return run;
}

}  // namespace gyrostat::testing
