// What training thread and sender both compute about clips, by the same pure functions, so that only short records
// cross between them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "client/src/settings.h"
#include "client/src/wire_records.h"
#include "model/ids.h"
#include "model/model_spec.h"
#include "remedy/clip_ledger.h"
#include "remedy/qk_clip.h"

namespace gyrostat::client {

// The state digest of protocol.md §3 as far as this client has state: attempt, epoch, ledger and version, local
// register, allow-list, bounds.
uint64_t StateDigest(const Settings& settings, const model::AttemptId& attempt, uint32_t epoch,
                     const remedy::ClipLedger& ledger, const LocalRegister& local);

// What local mode asks for at the boundary whose forward measured `maxima` (layer-major) under the ledger as it is
// now: a target for each head above the threshold. `*entries` is overwritten; does not allocate within its capacity.
void LocalEntries(std::span<const float> maxima, const LocalRegister& local, bool master_fp32,
                  const remedy::ClipLedger& ledger, std::vector<model::ClipEntry>* entries);

// Whether weights have fp32 masters as far as the job said so: not known counts as no, which only widens the dead band.
inline bool HasMaster(const model::ModelSpec& spec) { return spec.master_fp32.value_or(false); }

}  // namespace gyrostat::client
