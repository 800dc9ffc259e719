#include "client/src/agreement/lanes.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "model/signal.h"

namespace gyrostat::client {
namespace {

constexpr uint32_t kPieceBits = 16;
constexpr uint32_t kPieceMax = (1u << kPieceBits) - 1;

// Lanes of the order head.
enum OrderLane : size_t { kTag = 0, kKind = 3, kTau = 4, kSplit = 5, kRamp = 6, kCount = 7 };

// Kind, intervention and variant in one integer.
constexpr uint32_t kByteBits = 8;
uint32_t KindCode(const Proposal& proposal) {
  return static_cast<uint32_t>(proposal.kind) | static_cast<uint32_t>(proposal.intervention) << kByteBits |
         static_cast<uint32_t>(proposal.variant) << (2 * kByteBits);
}

bool ReadKind(uint32_t code, Proposal* out) {
  const uint32_t kind = code & 0xff, intervention = code >> kByteBits & 0xff, variant = code >> (2 * kByteBits);
  if (kind != static_cast<uint32_t>(ProposalKind::kClip) && kind != static_cast<uint32_t>(ProposalKind::kRegisters))
    return false;
  out->kind = static_cast<ProposalKind>(kind);
  out->intervention = static_cast<model::InterventionKind>(intervention);
  out->variant = static_cast<model::ClipVariant>(variant);
  return *model::Token(out->intervention) != '\0' && *model::Token(out->variant) != '\0';
}

void WriteShared(uint64_t value, size_t pieces, float* lanes) {
  for (size_t i = 0; i < pieces; ++i) {
    const auto piece = static_cast<float>(value >> (kPieceBits * i) & kPieceMax);
    lanes[i] = piece;
    lanes[pieces + i] = -piece;
  }
}

// An integer in [0, limit), or nothing.
std::optional<uint32_t> Integer(float lane, uint32_t limit) {
  if (!(lane >= 0 && lane < static_cast<float>(limit))) return std::nullopt;
  const auto value = static_cast<uint32_t>(lane);
  if (static_cast<float>(value) != lane) return std::nullopt;
  return value;
}

bool ReadShared(const float* lanes, size_t pieces, uint64_t* value) {
  *value = 0;
  for (size_t i = 0; i < pieces; ++i) {
    const auto piece = Integer(lanes[i], kPieceMax + 1);
    if (!piece || lanes[i] != -lanes[pieces + i]) return false;
    *value |= uint64_t{*piece} << (kPieceBits * i);
  }
  return true;
}

bool IsLaneFloat(float value) { return std::isfinite(value) && value >= 0; }

bool Fits(const LaneLayout& layout, const Proposal& p) {
  if (p.entries.size() > layout.entries || p.ramp >= kLaneIntegerMax || !IsLaneFloat(p.tau) || !IsLaneFloat(p.split))
    return false;
  return std::all_of(p.entries.begin(), p.entries.end(), [](const ProposalEntry& entry) {
    return entry.what < kLaneIntegerMax && entry.stamp < kLaneIntegerMax && IsLaneFloat(entry.value);
  });
}

bool ReadOrder(const LaneLayout& layout, std::span<const float> lanes, Proposal* out) {
  const float* head = lanes.data() + LaneLayout::kOrder;
  for (size_t i = 0; i < out->tag.pieces.size(); ++i) {
    const auto piece = Integer(head[kTag + i], kLaneIntegerMax);
    if (!piece) return false;
    out->tag.pieces[i] = *piece;
  }
  const auto kind = Integer(head[kKind], kLaneIntegerMax), ramp = Integer(head[kRamp], kLaneIntegerMax),
             count = Integer(head[kCount], layout.entries + 1);
  if (!kind || !ramp || !count || !ReadKind(*kind, out) || !IsLaneFloat(head[kTau]) || !IsLaneFloat(head[kSplit]))
    return false;
  out->ramp = *ramp;
  out->tau = head[kTau];
  out->split = head[kSplit];
  for (uint32_t i = 0; i < *count; ++i) {
    const float* entry = lanes.data() + LaneLayout::kEntries + size_t{3} * i;
    const auto what = Integer(entry[0], kLaneIntegerMax), stamp = Integer(entry[2], kLaneIntegerMax);
    if (!what || !stamp || !IsLaneFloat(entry[1])) return false;
    out->entries.push_back({*what, entry[1], *stamp});
  }
  return true;
}

}  // namespace

OrderTag OrderTag::Of(const model::OrderId& id) {
  OrderTag tag;
  for (size_t i = 0; i < tag.pieces.size(); ++i)
    for (size_t byte = 0; byte < 3; ++byte)
      tag.pieces[i] |= uint32_t{id.bytes[3 * i + byte]} << (kByteBits * byte);
  return tag;
}

model::OrderId OrderTag::AsId() const {
  model::OrderId id;
  for (size_t i = 0; i < pieces.size(); ++i)
    for (size_t byte = 0; byte < 3; ++byte)
      id.bytes[3 * i + byte] = static_cast<uint8_t>(pieces[i] >> (kByteBits * byte));
  return id;
}

bool WriteWord(const LaneLayout& layout, const RankWord& word, std::span<float> lanes) {
  std::fill_n(lanes.begin(), layout.statistics_at(), 0.0f);
  WriteShared(word.digest, 4, lanes.data() + LaneLayout::kDigest);
  WriteShared(word.boundary, 2, lanes.data() + LaneLayout::kBoundary);
  lanes[LaneLayout::kNotReady] = word.not_ready ? 1 : 0;
  lanes[LaneLayout::kBadInput] = word.bad_input ? 1 : 0;
  if (word.proposal == nullptr || word.proposal->kind == ProposalKind::kNone) return true;
  const Proposal& proposal = *word.proposal;
  if (!Fits(layout, proposal)) return false;
  float* head = lanes.data() + LaneLayout::kOrder;
  for (size_t i = 0; i < proposal.tag.pieces.size(); ++i) head[kTag + i] = static_cast<float>(proposal.tag.pieces[i]);
  head[kKind] = static_cast<float>(KindCode(proposal));
  head[kTau] = proposal.tau;
  head[kSplit] = proposal.split;
  head[kRamp] = static_cast<float>(proposal.ramp);
  head[kCount] = static_cast<float>(proposal.entries.size());
  float* lane = lanes.data() + LaneLayout::kEntries;
  for (const ProposalEntry& entry : proposal.entries) {
    *lane++ = static_cast<float>(entry.what);
    *lane++ = entry.value;
    *lane++ = static_cast<float>(entry.stamp);
  }
  return true;
}

void ReadRound(const LaneLayout& layout, std::span<const float> lanes, Round* round) {
  std::vector<ProposalEntry> entries = std::move(round->proposal.entries);
  entries.clear();
  *round = Round{};
  round->proposal.entries = std::move(entries);
  round->digests_equal = ReadShared(lanes.data() + LaneLayout::kDigest, 4, &round->digest);
  uint64_t boundary = 0;
  round->boundaries_equal = ReadShared(lanes.data() + LaneLayout::kBoundary, 2, &boundary);
  round->boundary = static_cast<uint32_t>(boundary);
  // Anything but a clear zero counts as a no.
  round->not_ready = !(lanes[LaneLayout::kNotReady] == 0);
  round->bad_input = !(lanes[LaneLayout::kBadInput] == 0);
  const float* head = lanes.data() + LaneLayout::kOrder;
  if (std::all_of(head, head + 8, [](float lane) { return lane == 0; })) return;
  round->malformed = !ReadOrder(layout, lanes, &round->proposal);
  if (!round->malformed) return;
  round->proposal.entries.clear();
  round->proposal.kind = ProposalKind::kNone;
}

float ToLane(float value) {
  if (value != value || value > FLT_MAX) return FLT_MAX;
  return std::max(value, -FLT_MAX);
}

float FromLane(float lane) {
  return lane == FLT_MAX ? std::numeric_limits<float>::quiet_NaN() : lane;
}

}  // namespace gyrostat::client
