#include "simulation/plan.h"

#include <cstdio>

namespace gyrostat::simulation {

const char* Name(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone:
      return "";
    case Mutant::kPollIfReady:
      return "poll-if-ready";
    case Mutant::kClockExpiry:
      return "clock-expiry";
    case Mutant::kLocalTimeout:
      return "local-timeout";
    case Mutant::kClamp:
      return "clamp";
    case Mutant::kTagBySendTime:
      return "tag-by-send-time";
    case Mutant::kNoEpoch:
      return "no-epoch";
    case Mutant::kAlphaOutside:
      return "alpha-outside";
    case Mutant::kAckEarly:
      return "ack-early";
    case Mutant::kNewestS:
      return "newest-s";
    case Mutant::kRejoinEmpty:
      return "rejoin-empty";
    case Mutant::kRejoinOldEpoch:
      return "rejoin-old-epoch";
    case Mutant::kRejoinHeedless:
      return "rejoin-heedless";
  }
  return "";
}

std::vector<Mutant> AllMutants() {
  std::vector<Mutant> all;
  for (auto m = static_cast<uint8_t>(Mutant::kPollIfReady); m <= static_cast<uint8_t>(Mutant::kRejoinHeedless); ++m)
    all.push_back(static_cast<Mutant>(m));
  return all;
}

Plan::Plan(uint64_t the_seed) : seed(the_seed) {
  Dice dice(the_seed ^ 0xabcdef);
  replicas = static_cast<uint32_t>(dice.Between(1, 3));
  shards = static_cast<uint32_t>(dice.Between(1, 2));
  if (ranks() == 1) replicas = 2;
  const bool grouped = dice.Chance(0.4);
  kv_heads = grouped ? 2 : 4;
  if (dice.Chance(0.3)) entries = 64;
  boundaries = static_cast<uint32_t>(dice.Between(60, 240));
  growth = 0.01 + 0.06 * dice.Real();
  if (dice.Chance(0.25)) where = model::ClipWhere::kLocal;
  if (dice.Chance(0.2)) mode = model::Mode::kAdvise;
  wire_max = dice.Chance(0.3) ? 15'000 : 1'500;
  sums = dice.Chance(0.8);
  // A tenth of the seeds has no fault at all: there orders must be applied.
  if (dice.Chance(0.1)) return;
  // Each fault is either out of the world or as frequent as the dice say.
  const auto fault = [&dice](double most) { return dice.Chance(0.5) ? most * dice.Real() : 0; };
  crash = fault(0.01);
  pause = fault(0.05);
  slow_leader = fault(0.1);
  reset = fault(0.06);
  collective_fails = fault(0.005);
  apply_fails = fault(0.01);
  binding_breaks = fault(0.01);
  alpha_touched = fault(0.01);
  kill_switch = fault(0.01);
  late_copy = fault(0.2);
  bad_input = fault(0.1);
  clock_jump = fault(0.1);
  stream_breaks = fault(0.05);
  order_lost = fault(0.3);
  order_delayed = fault(0.5);
  order_doubled = fault(0.3);
  order_edge = fault(0.8);
  order_forged = fault(0.4);
  daemon_restarts = fault(0.05);
  mode_changes = fault(0.02);
  register_orders = fault(0.1);
  checkpoint = fault(0.2);
  cannot_bind = fault(0.1);
  rank_lost = fault(0.02);
  regroup = fault(0.04);
  join_fails = fault(0.05);
  sum_fails = fault(0.1);
  absent = fault(0.2);
  odd = fault(0.01);
}

std::string Plan::ToString() const {
  char text[512];
  std::snprintf(text, sizeof(text),
                "seed %llu: %u replicas x %u shards, %u key heads, growth %.3f, %s, %s; crash %.3f pause %.3f "
                "reset %.3f collective %.3f apply %.3f binding %.3f alpha %.3f edge %.2f forged %.2f stream %.3f "
                "daemon %.3f lost %.3f regroup %.3f",
                static_cast<unsigned long long>(seed), replicas, shards, kv_heads, growth, model::Token(where),
                model::Token(mode), crash, pause, reset, collective_fails, apply_fails, binding_breaks, alpha_touched,
                order_edge, order_forged, stream_breaks, daemon_restarts, rank_lost,
                regroup);
  return text;
}

}  // namespace gyrostat::simulation
