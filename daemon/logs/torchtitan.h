// torchtitan: "step: 10  loss: 11.52  grad_norm: 8747538.0  memory: ...". A loss of exactly -1 is what pipeline ranks
// without a loss print.
#pragma once

#include <memory>
#include <string_view>

#include "logs/text_reader.h"

namespace gyrostat::logs {

std::unique_ptr<LineParser> MakeTorchtitan();

// Whether a line could only be of such a log.
bool LooksLikeTorchtitan(std::string_view line);

}  // namespace gyrostat::logs
