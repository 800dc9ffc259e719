// DeepSpeed's own lines: log_dist ("step=10, skipped=6, lr=[..], mom=[..]"), the pipeline engine's "steps: 10 loss:
// 2.3 iter time", overflows ("OVERFLOW! ... Attempted loss scale: 65536, reducing to 32768"). A loss that the script
// prints on a line of its own belongs to the step line that comes next.
#pragma once

#include <memory>
#include <string_view>

#include "logs/text_reader.h"

namespace gyrostat::logs {

std::unique_ptr<LineParser> MakeDeepspeed();

// Whether a line could only be of such a log.
bool LooksLikeDeepspeed(std::string_view line);

}  // namespace gyrostat::logs
