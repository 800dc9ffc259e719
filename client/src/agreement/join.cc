#include "client/src/agreement/join.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/mix.h"
#include "client/src/agreement/state_digest.h"

namespace gyrostat::client {
namespace {

constexpr uint32_t kPieceBits = 16;
constexpr uint64_t kPieceMax = (1u << kPieceBits) - 1;

// Numbers that all ranks must share, each in 16-bit pieces, as x and as -x.
enum class Decides : uint8_t { kActing, kRound, kSums };
struct SharedNumber {
  const char* name;
  size_t pieces;
  uint64_t (*of)(const JoinWord&);
  Decides decides = Decides::kActing;  // And of which collective the length hangs on it.
};
constexpr SharedNumber kShared[] = {
    {"version of the protocol", 1, [](const JoinWord&) -> uint64_t { return kProtocolVersion; }},
    {"size of the world", 2, [](const JoinWord& w) -> uint64_t { return w.world_size; }},
    {"lag", 1, [](const JoinWord& w) -> uint64_t { return w.lag; }},
    {"number of entries in R", 2, [](const JoinWord& w) -> uint64_t { return w.layout.entries; }, Decides::kRound},
    {"number of statistics in R", 2, [](const JoinWord& w) -> uint64_t { return w.layout.statistics + w.layout.more; },
     Decides::kRound},
    {"number of sums beside R", 2, [](const JoinWord& w) -> uint64_t { return w.layout.sums; }, Decides::kSums},
    {"terms (allow-list, bounds or model)", 4, [](const JoinWord& w) -> uint64_t { return w.digest; }},
};
constexpr size_t SharedLanes() {
  size_t lanes = 0;
  for (const SharedNumber& number : kShared) lanes += 2 * number.pieces;
  return lanes;
}

constexpr size_t kNotReady = SharedLanes();
constexpr size_t kAttempt = kNotReady + 1;
constexpr size_t kAttemptPieces = 8;
constexpr size_t kEpoch = kAttempt + kAttemptPieces;
constexpr size_t kBoundary = kEpoch + 1;
constexpr size_t kRanks = kBoundary + 1;
constexpr uint64_t kCountMax = kLaneIntegerMax - 1;
constexpr size_t kHashPieces = 4, kRowsPieces = 3;
constexpr size_t kRankLanes = 1 + kHashPieces + kRowsPieces;  // The replica counts from 1: 0 is a rank that is missing.

void WritePieces(uint64_t value, size_t pieces, float* lanes) {
  for (size_t i = 0; i < pieces; ++i) lanes[i] = static_cast<float>(value >> (kPieceBits * i) & kPieceMax);
}

std::optional<uint64_t> ReadPieces(const float* lanes, size_t pieces) {
  uint64_t value = 0;
  for (size_t i = 0; i < pieces; ++i) {
    if (!(lanes[i] >= 0 && lanes[i] <= static_cast<float>(kPieceMax))) return std::nullopt;
    const auto piece = static_cast<uint64_t>(lanes[i]);
    if (static_cast<float>(piece) != lanes[i]) return std::nullopt;
    value |= piece << (kPieceBits * i);
  }
  return value;
}

// The first number that the ranks do not share; null: they share all. `*result` learns what hangs on those.
const char* FirstUnequal(std::span<const float> lanes, JoinResult* result) {
  const float* lane = lanes.data();
  const char* first = nullptr;
  for (const SharedNumber& number : kShared) {
    bool equal = true;
    for (size_t i = 0; i < number.pieces; ++i) equal &= lane[i] == -lane[number.pieces + i];
    lane += 2 * number.pieces;
    if (equal) continue;
    if (first == nullptr) first = number.name;
    if (number.decides == Decides::kRound) result->same_round = false;
    if (number.decides == Decides::kSums) result->same_sums = false;
  }
  return first;
}

// How many replicas there are ranks of.
uint32_t Replicas(uint32_t world_size, std::span<const float> lanes) {
  std::set<float> replicas;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    const float replica = lanes[kRanks + size_t{rank} * kRankLanes];
    if (replica >= 1 && replica <= static_cast<float>(world_size)) replicas.insert(replica);
  }
  return std::max<uint32_t>(static_cast<uint32_t>(replicas.size()), 1);
}

// Empty, or which replica's rows are not owned exactly once.
std::string CheckCover(const JoinWord& word, const RowCover& whole, std::span<const float> lanes) {
  std::map<uint32_t, RowCover> replicas;
  for (uint32_t rank = 0; rank < word.world_size; ++rank) {
    const float* at = lanes.data() + kRanks + size_t{rank} * kRankLanes;
    const auto hash = ReadPieces(at + 1, kHashPieces), rows = ReadPieces(at + 1 + kHashPieces, kRowsPieces);
    if (!(at[0] >= 1 && at[0] <= static_cast<float>(word.world_size)) || !hash || !rows)
      return "rank " + std::to_string(rank) + " did not join, wanted all " + std::to_string(word.world_size);
    replicas[static_cast<uint32_t>(at[0]) - 1].Add(RowCover::Of(*hash, *rows));
  }
  for (const auto& [replica, cover] : replicas) {
    if (cover == whole) continue;
    const std::string text = "the ranks of replica " + std::to_string(replica) + " own " +
                             std::to_string(cover.rows()) + " rows of query and key heads, wanted each of " +
                             std::to_string(whole.rows()) + " once";
    return cover.rows() == whole.rows() ? text + ": some are owned twice and others by nobody" : text;
  }
  return {};
}

// An integer that every rank may have put in, and the highest won.
std::optional<uint32_t> Highest(float lane) {
  if (!(lane >= 0 && lane <= static_cast<float>(kCountMax))) return std::nullopt;
  const auto value = static_cast<uint32_t>(lane);
  return static_cast<float>(value) == lane ? std::optional(value) : std::nullopt;
}

}  // namespace

void RowCover::Add(uint32_t layer, Projection projection, uint64_t begin, uint64_t end) {
  const uint64_t place = base::Mix(uint64_t{layer} << 1 | static_cast<uint64_t>(projection), 0);
  for (uint64_t row = begin; row < end; ++row) hash_ += base::Mix(place, row);
  rows_ += end > begin ? end - begin : 0;
}

void RowCover::Add(const RowCover& other) {
  hash_ += other.hash_;
  rows_ += other.rows_;
}

RowCover RowCover::Whole(const model::ModelSpec& model, uint32_t rows_per_head) {
  RowCover whole;
  for (uint32_t layer = 0; layer < model.layers; ++layer) {
    whole.Add(layer, Projection::kQuery, 0, uint64_t{model.heads} * rows_per_head);
    whole.Add(layer, Projection::kKey, 0, uint64_t{model.KvHeads()} * rows_per_head);
  }
  return whole;
}

RowCover RowCover::Of(uint64_t hash, uint64_t rows) {
  RowCover cover;
  cover.hash_ = hash;
  cover.rows_ = rows;
  return cover;
}

size_t JoinLanes(uint32_t world_size) { return kRanks + size_t{world_size} * kRankLanes; }

void WriteJoin(const JoinWord& word, std::span<float> lanes) {
  std::fill(lanes.begin(), lanes.end(), 0.0f);
  float* lane = lanes.data();
  for (const SharedNumber& number : kShared) {
    WritePieces(number.of(word), number.pieces, lane);
    for (size_t i = 0; i < number.pieces; ++i) lane[number.pieces + i] = -lane[i];
    lane += 2 * number.pieces;
  }
  lanes[kNotReady] = word.ready && word.epoch < kCountMax && word.boundary < kCountMax ? 0 : 1;
  lanes[kEpoch] = static_cast<float>(std::min<uint64_t>(word.epoch, kCountMax));
  lanes[kBoundary] = static_cast<float>(std::min<uint64_t>(word.boundary, kCountMax));
  if (word.rank == 0)
    for (size_t i = 0; i < kAttemptPieces; ++i)
      lanes[kAttempt + i] = static_cast<float>(word.attempt.bytes[2 * i] | word.attempt.bytes[2 * i + 1] << 8);
  if (JoinLanes(word.rank + 1) > lanes.size()) return;
  float* mine = lanes.data() + kRanks + size_t{word.rank} * kRankLanes;
  mine[0] = static_cast<float>(word.replica + 1);
  WritePieces(word.cover.hash(), kHashPieces, mine + 1);
  WritePieces(word.cover.rows(), kRowsPieces, mine + 1 + kHashPieces);
}

JoinResult ReadJoin(const JoinWord& word, const RowCover& whole, std::span<const float> lanes) {
  JoinResult result;
  if (lanes.size() != JoinLanes(word.world_size)) {
    result.reason = "the join gave back " + std::to_string(lanes.size()) + " lanes, wanted " +
                    std::to_string(JoinLanes(word.world_size));
    return result;
  }
  for (size_t i = 0; i < kAttemptPieces; ++i) {
    const auto piece = ReadPieces(lanes.data() + kAttempt + i, 1);
    if (!piece) {
      result.attempt = {};
      result.reason = "the join brought no attempt of the leader";
      return result;
    }
    result.attempt.bytes[2 * i] = static_cast<uint8_t>(*piece & 0xff);
    result.attempt.bytes[2 * i + 1] = static_cast<uint8_t>(*piece >> 8);
  }
  result.replicas = Replicas(word.world_size, lanes);
  const char* unequal = FirstUnequal(lanes, &result);
  const auto epoch = Highest(lanes[kEpoch]), boundary = Highest(lanes[kBoundary]);
  result.epoch = epoch.value_or(word.epoch);
  result.boundary = boundary.value_or(word.boundary);
  if (!epoch || !boundary)
    result.reason = "the join brought no epoch and boundary";
  else if (unequal != nullptr)
    result.reason = std::string("the ranks differ in ") + unequal;
  else if (result.attempt.IsZero())
    result.reason = "the join brought no attempt of the leader";
  else if (!(lanes[kNotReady] == 0))
    result.reason = "a rank cannot act on its weights";
  else
    result.reason = CheckCover(word, whole, lanes);
  result.may_act = result.reason.empty();
  return result;
}

}  // namespace gyrostat::client
