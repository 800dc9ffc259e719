// Model specs from files: --model, and `gyrostatctl check-model`.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "ctl/console.h"
#include "ctl/request.h"
#include "model/model_spec.h"

namespace gyrostat::ctl {

// The spec of a preset by name (model/presets.h), or in a file: gyrostat's, or a Hugging Face config.json. The error
// names the file and what is wrong.
absl::StatusOr<model::ModelSpec> ReadModel(const std::string& preset_or_file);

// Prints what is known of the model and what is not; kRefused, and a line for each mistake, where the spec cannot be.
int CheckModel(const Request& request, const Console& console);

}  // namespace gyrostat::ctl
