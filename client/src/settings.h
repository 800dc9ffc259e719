// gyro_options as the rest of the client wants them: read once at gyro_open on the caller's thread (so that no other
// thread ever reads the environment), checked, copied, in model:: types.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gyrostat/gyrostat.h"
#include "model/ids.h"
#include "model/model_spec.h"

namespace gyrostat::client {

struct Settings {
  bool active = false;  // False: switched off, no address, or not the leader.
  std::string address, run, framework, transport_path;
  std::vector<std::string> allow;
  bool allow_qk_clip = false;
  double tau_min = 0;
  uint32_t rank = 0, world_size = 1;
  gyro_collective collective{};  // max_begin null: none. `shards` is not kept.
  std::vector<gyro_shard> shards;
  uint32_t agreement_lag = 0;  // d of protocol.md §3 where the ranks agree; 0: they do not.
  uint32_t ring_reports = 64;  // 64 steps of slack while the sender has no core: seconds in any real job.
  uint32_t unacked_reports = 1024;
  uint64_t unacked_bytes = uint64_t{32} << 20;
  model::AttnLogitInfo attn_logit;
  bool grad_norm_clipped = false;
  model::ModelSpec model;
};

// Reads `options` (null: all defaults) and the environment. GYRO_OK, or GYRO_INVALID with a sentence in `*error` that
// names the field, the value seen and the value wanted; what could be read is still in `*settings`, with `active`
// false.
gyro_status ReadSettings(const gyro_options* options, Settings* settings, std::string* error);

// Puts another membership into `*settings`: as gyro_rejoin. GYRO_OK, or GYRO_INVALID with a sentence and nothing
// changed.
gyro_status ReadMembership(const gyro_collective* collective, uint32_t rank, uint32_t world_size, Settings* settings,
                           std::string* error);

}  // namespace gyrostat::client
