// Megatron-LM's iteration lines (Megatron-DeepSpeed's and nanotron's too):
// " iteration 1/ 1000 | learning rate: 1.8E-05 | lm loss: 1.2E+01 | grad norm: 6.7 | number of nan iterations: 0 |".
//
// A loss that is NaN is not printed. It is read as NaN where the line counts NaN iterations, or where the loss was
// there before and no iteration was skipped; a skipped iteration has no loss, and says nothing.
#pragma once

#include <memory>
#include <string_view>

#include "logs/text_reader.h"

namespace gyrostat::logs {

std::unique_ptr<LineParser> MakeMegatron();

// Whether a line could only be of such a log.
bool LooksLikeMegatron(std::string_view line);

}  // namespace gyrostat::logs
