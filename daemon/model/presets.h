// Known architectures by name, so that a job or a log need not spell out what its name says.
//
// A preset fixes what the name fixes; sizes only where there is one model of that name. What the job declares itself
// always wins. Pure; thread-safe.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "model/model_spec.h"

namespace gyrostat::model {

enum class Stack : uint8_t { kDecoder, kEncoder, kEncoderDecoder };
const char* Token(Stack v);  // decoder encoder encoder_decoder

struct Preset {
  std::string_view name;
  ModelSpec spec;               // `preset` is set to `name`.
  Stack stack = Stack::kDecoder;
  bool embedding_norm = false;  // The embedding's output is normalised or scaled by sqrt(d).
  std::string_view note = {};   // What else is particular. May be empty.
  // `model_type` of the Hugging Face configurations that it describes; the preset says what those leave unsaid.
  std::span<const std::string_view> model_types = {};
};

std::span<const Preset> Presets();
const Preset* FindPreset(std::string_view name);  // Null when there is none.
const Preset* PresetOfModelType(std::string_view model_type);  // The same.

// `spec` with the gaps filled from the preset it names; unchanged where it names none, or a stranger.
ModelSpec Completed(const ModelSpec& spec);

}  // namespace gyrostat::model
