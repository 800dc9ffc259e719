// nanoGPT ("iter 0: loss 4.45, time 23ms"), build-nanogpt ("step 0 | loss: 10.95 | norm: 15" and "0 train 10.95"),
// modded-nanogpt ("step:1/6200 train_loss:10.9"), nanochat ("step 00001 (0.00%) | loss: 5.47"). The losses of an
// evaluation ("step 200: train loss 2.4, val loss 2.5") count only where there are no others.
#pragma once

#include <memory>
#include <string_view>

#include "logs/text_reader.h"

namespace gyrostat::logs {

std::unique_ptr<LineParser> MakeNanogpt();

// Whether a line could only be of such a log.
bool LooksLikeNanogpt(std::string_view line);

}  // namespace gyrostat::logs
