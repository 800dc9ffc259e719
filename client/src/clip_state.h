// What training thread and sender both compute about clips, by the same pure functions, so that only short records
// cross between them. (The digest of both is in agreement/.)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "client/src/agreement/state_digest.h"
#include "client/src/settings.h"
#include "client/src/wire_records.h"
#include "model/ids.h"
#include "model/model_spec.h"
#include "remedy/clip_ledger.h"
#include "remedy/qk_clip.h"

namespace gyrostat::client {

// What local mode asks for after a forward that measured `maxima` (layer-major) under `version` of the ledger: a target
// for each head above the threshold; none where that version is forgotten. `*entries` is overwritten; does not allocate
// within its capacity.
void LocalEntries(std::span<const float> maxima, const LocalRegister& local, bool master_fp32,
                  const remedy::ClipLedger& ledger, uint64_t version, std::vector<model::ClipEntry>* entries);

// Whether weights have fp32 masters as far as the job said so: not known counts as no, which only widens the dead band.
inline bool HasMaster(const model::ModelSpec& spec) { return spec.master_fp32.value_or(false); }

}  // namespace gyrostat::client
