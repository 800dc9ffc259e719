// What a seed means: the shape of the job and the faults that may befall it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/intervention.h"
#include "simulation/dice.h"

namespace gyrostat::simulation {

// Virtual microseconds.
using Time = uint64_t;

// The rules that can be broken (protocol.md §10), one at a time.
enum class Mutant : uint8_t {
  kNone,
  kPollIfReady,       // Decides on R only if its copy has arrived.
  kClockExpiry,       // Each rank judges expiry by its own clock.
  kLocalTimeout,      // Waits for R for a time of its own, then goes on.
  kClamp,             // Clamps an excess beyond ln 10 instead of refusing it.
  kTagBySendTime,     // Takes the ledger version of the moment of sending for that of the forward.
  kNoEpoch,           // Applies what was put into R before a reset.
  kAlphaOutside,      // Leaves registers out of the digest.
  kAckEarly,          // Says applied before R_{b+1}.
  kNewestS,           // Compares an order with the newest maxima, not with those of its basis.
  kRejoinEmpty,       // Joins again without its ledger and registers.
  kRejoinOldEpoch,    // Joins again and stays in its old epoch.
  kRejoinHeedless,    // Joins others, new or unsure, and acts before a state was loaded.
};
// Name on the command line; empty for kNone.
const char* Name(Mutant mutant);
std::vector<Mutant> AllMutants();

struct Plan {
  explicit Plan(uint64_t seed);

  uint64_t seed;
  // The job.
  // Data-parallel copies in the beginning, tensor-parallel parts of each.
  uint32_t replicas = 1, shards = 1;
  uint32_t layers = 2, heads = 4, kv_heads = 4;
  uint32_t entries = 340;
  uint32_t boundaries = 100;  // That must be passed in all; attempts together.
  double tau = 30, growth = 0.03;
  model::ClipWhere where = model::ClipWhere::kRemote;
  model::Mode mode = model::Mode::kAct;
  Time step = 1000;
  // Faults, each a chance per boundary or per message.
  double crash = 0, pause = 0, slow_leader = 0, reset = 0, collective_fails = 0, apply_fails = 0, binding_breaks = 0;
  double alpha_touched = 0, kill_switch = 0, late_copy = 0, bad_input = 0, clock_jump = 0;
  double stream_breaks = 0, order_lost = 0, order_delayed = 0, order_doubled = 0, order_edge = 0, order_forged = 0;
  double daemon_restarts = 0, mode_changes = 0, register_orders = 0, checkpoint = 0, cannot_bind = 0;
  // Ranks that are lost in mid-step, and ones that come or go at a boundary; then all join again. A copy of a join that
  // does not arrive.
  double rank_lost = 0, regroup = 0, join_fails = 0;
  // The statistics: whether the job has a SUM, and values that a rank does not have, or has as NaN or infinity.
  bool sums = true;
  double sum_fails = 0, absent = 0, odd = 0;
  Time wire_min = 50, wire_max = 1500;

  uint32_t ranks() const { return replicas * shards; }
  uint32_t head_count() const { return layers * heads; }
  std::string ToString() const;
};

}  // namespace gyrostat::simulation
