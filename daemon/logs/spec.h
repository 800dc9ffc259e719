// Model specs as files write them: the `model` object of gyrostat JSONL, and Hugging Face's config.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "logs/record.h"
#include "model/model_spec.h"

namespace gyrostat::logs {

struct SpecRead {
  model::ModelSpec spec;
  std::string kind;                     // "gyrostat" or "hf-config".
  std::vector<std::string> errors;      // What cannot be: a sentence each, with the value seen and the values wanted.
  std::vector<std::string> unknown;     // Keys that mean nothing here; of a gyrostat spec only.
};

// The fields of `record` under `prefix` ("model/", or "") as a gyrostat spec.
SpecRead ReadSpec(const Record& record, std::string_view prefix);

// A whole file: a gyrostat spec, a gyrostat header that holds one, or a config.json (has model_type or
// num_hidden_layers; text models inside a text_config are found).
SpecRead ReadSpecFile(const std::string& bytes);

// The `attn_logit` object of a header.
model::AttnLogitInfo ReadAttnLogit(const Record& record);

// What is wrong between fields: heads that do not divide, sizes that do not fit. Appends sentences.
void CheckSpec(const model::ModelSpec& spec, std::vector<std::string>* errors);

}  // namespace gyrostat::logs
