// llm.c: "step 1/19560 | loss 10.9 (+0.42z)| norm 15.3 (-z)| lr 8.57e-07 | 3788 ms" on stdout, "s:0 trl:10.9" in
// main.log, and the older "step 1/100 | train loss 5.3 | norm 2.1".
#pragma once

#include <memory>
#include <string_view>

#include "logs/text_reader.h"

namespace gyrostat::logs {

std::unique_ptr<LineParser> MakeLlmc();

// Whether a line could only be of such a log.
bool LooksLikeLlmc(std::string_view line);

}  // namespace gyrostat::logs
