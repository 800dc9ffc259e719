// The layout of R, the all-reduce MAX in which ranks agree (protocol.md §3), and what its lanes mean.
//
// Lanes are float32. A MAX passes integers below 2^24 and finite non-negative floats bit for bit on every backend. A
// number that all ranks must share travels as x and as -x: all have the same if max(x) = -max(-x).
//
// Pure; thread-safe; no allocation but in the vectors it is given. Reading is safe on any lanes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/ids.h"
#include "model/intervention.h"

namespace gyrostat::client {

// Integers in lanes stay below this: float32 holds them exactly.
inline constexpr uint32_t kLaneIntegerMax = 1u << 24;

struct LaneLayout {
  uint32_t entries = 340;   // Room for this many entries of an order: 4 KB. Sets of registers are never cut.
  uint32_t statistics = 0;  // Maxima of attention logits, layer-major, after the entries.
  uint32_t more = 0;        // What else is a maximum (statistics.h), after them.
  uint32_t sums = 0;        // Lanes of the SUM beside R; 0: there is none.

  static constexpr size_t kDigest = 0;     // 4 pieces of 16 bits as x, then the same as -x.
  static constexpr size_t kBoundary = 8;   // 2 pieces, and -x.
  static constexpr size_t kNotReady = 12;  // Any rank says 1: all hold.
  static constexpr size_t kBadInput = 13;  // Any rank says 1: what this boundary measured is no basis.
  static constexpr size_t kOrder = 14;     // Tag (3), kind, tau, split, ramp, number of entries.
  static constexpr size_t kEntries = 22;

  size_t statistics_at() const { return kEntries + size_t{3} * entries; }
  size_t size() const { return statistics_at() + statistics + more; }
};

// 72 bits that name an order in R, where an id does not fit.
struct OrderTag {
  std::array<uint32_t, 3> pieces{};  // 24 bits each.
  auto operator<=>(const OrderTag&) const = default;
  bool IsZero() const { return *this == OrderTag{}; }
  static OrderTag Of(const model::OrderId& id);
  // An id that begins with the tag; its other bytes are zero.
  model::OrderId AsId() const;
};

// What an order in R asks for. Do not change the values: ranks of one job may run several releases.
enum class ProposalKind : uint8_t {
  kNone = 0,
  kClip = 1,      // Entries: head, excess ticks Λ* - λ@basis, age of the basis.
  kRegisters = 2  // Entries: register, value, expected version. Applied together or not at all.
};

struct ProposalEntry {
  uint32_t what = 0;   // layer * heads + head, or the register.
  float value = 0;     // Ticks as an integer below 2^24, or the value. Finite, not negative.
  uint32_t stamp = 0;  // Boundaries from the basis to the boundary of this R, or the version expected mod 2^24.
  bool operator==(const ProposalEntry&) const = default;
};

// The order that the leader puts into R.
struct Proposal {
  OrderTag tag;
  ProposalKind kind = ProposalKind::kNone;
  model::InterventionKind intervention = model::InterventionKind::kQkClip;
  model::ClipVariant variant = model::ClipVariant::kMha;
  float tau = 0, split = 0;
  uint32_t ramp = 0;  // Boundaries over which registers move to their values; 0: at once.
  std::vector<ProposalEntry> entries;
  bool operator==(const Proposal&) const = default;
};

// What one rank puts into R, but for the statistics.
struct RankWord {
  uint64_t digest = 0;
  model::Boundary boundary = 0;
  bool not_ready = false, bad_input = false;
  const Proposal* proposal = nullptr;  // The leader's, or none.
};

// Writes all lanes before the statistics. False, with an empty order area, when the proposal does not fit the lanes.
bool WriteWord(const LaneLayout& layout, const RankWord& word, std::span<float> lanes);

// What all ranks together said.
struct Round {
  bool digests_equal = false, boundaries_equal = false;
  uint64_t digest = 0;    // Where equal.
  uint32_t boundary = 0;  // Mod 2^32, where equal.
  bool not_ready = false, bad_input = false;
  bool malformed = false;  // The order area holds something that WriteWord does not write. Then proposal.kind is kNone.
  Proposal proposal;       // Its vector is reused.
};
void ReadRound(const LaneLayout& layout, std::span<const float> lanes, Round* round);

// A statistic on its way into the MAX: absent and -Inf become -FLT_MAX, which loses; NaN and +Inf become +FLT_MAX,
// which wins, so that a broken head is never hidden by a healthy copy.
float ToLane(float value);
// And back: -FLT_MAX is absent (model::kAbsent), +FLT_MAX is NaN.
float FromLane(float lane);

}  // namespace gyrostat::client
