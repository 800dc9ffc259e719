// What gyro_state_save writes into the trainer's checkpoint, and reads back: format version, shape, ledger with its
// version, registers, the learning rate's envelope, the outcomes of the last orders. Keyed by global layer and head, so
// that world size and sharding may change.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/src/job_registers.h"
#include "client/src/wire_records.h"
#include "model/ids.h"
#include "model/intervention.h"
#include "remedy/clip_ledger.h"

namespace gyrostat::client {

std::string SaveState(const model::AttemptId& attempt, uint32_t epoch, model::Boundary boundary,
                      const remedy::ClipLedger& ledger,
                      const std::vector<std::pair<model::OrderId, model::AckOutcome>>& outcomes,
                      const JobRegisters& registers);

// Null and a sentence in `*error` when `bytes` are not a state of ours, are damaged, or come from a model of another
// shape.
std::unique_ptr<RestoredState> LoadState(std::string_view bytes, uint32_t layers, uint32_t heads, std::string* error);

}  // namespace gyrostat::client
