// Any line with a step and a name with a number: NeMo, absl, MLflow-like loggers, print() calls, Hugging Face's dicts
// on stdout, and records over several lines (OLMo, Composer: a line with the step, then indented lines).
#pragma once

#include <memory>
#include <string_view>

#include "logs/text_reader.h"

namespace gyrostat::logs {

std::unique_ptr<LineParser> MakePlainText();

// Whether a line could only be of such a log.
bool LooksLikePlainText(std::string_view line);

}  // namespace gyrostat::logs
