// fairseq and metaseq: train_inner lines, as JSON (log_format=json; numbers are strings there) or as text
// ("train_inner | epoch 001: 100 / 1000 loss=9.5, num_updates=100, lr=1e-05, gnorm=2.1"). Steps are num_updates.
#pragma once

#include <memory>
#include <string_view>

#include "logs/text_reader.h"

namespace gyrostat::logs {

std::unique_ptr<LineParser> MakeFairseq();

// Whether a line could only be of such a log.
bool LooksLikeFairseq(std::string_view line);

}  // namespace gyrostat::logs
