// Joining: one blocking collective before the first boundary, an all-reduce MAX too, in which ranks find out whether
// they may act together (protocol.md §4.1): same protocol, layout, lag and terms; one attempt, the leader's; and every
// row of every query and key head owned exactly once in each replica. All ranks read the same lanes and come to the
// same answer. Ranks join again when others come or go.
//
// Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "client/src/agreement/lanes.h"
#include "model/ids.h"
#include "model/model_spec.h"

namespace gyrostat::client {

// Rows of projections that somebody owns, as a multiset: a sum of one hash per row. Two covers are equal when the same
// rows were added equally often (but for a chance of 2^-64), wherever shards cut, and adding costs no memory.
class RowCover {
 public:
  enum class Projection : uint8_t { kQuery = 0, kKey = 1 };

  // Rows [begin, end) of the whole projection of `layer`, counted over all heads.
  void Add(uint32_t layer, Projection projection, uint64_t begin, uint64_t end);
  void Add(const RowCover& other);

  uint64_t hash() const { return hash_; }
  uint64_t rows() const { return rows_; }
  bool operator==(const RowCover&) const = default;

  // Every row once. `rows_per_head` 1 where shards never cut heads.
  static RowCover Whole(const model::ModelSpec& model, uint32_t rows_per_head);
  static RowCover Of(uint64_t hash, uint64_t rows);

 private:
  uint64_t hash_ = 0, rows_ = 0;
};

struct JoinWord {
  LaneLayout layout;
  uint32_t lag = 1;
  uint32_t world_size = 1, rank = 0;
  uint32_t replica = 0;         // Which copy of the weights this rank holds a part of. Below world_size.
  model::AttemptId attempt;     // The leader's (rank 0) counts.
  uint32_t epoch = 0;             // The highest counts, of both: some ranks may have been there before, and one further
  model::Boundary boundary = 0;   // than another. Below 2^24.
  uint64_t digest = 0;          // Of what no checkpoint changes: allow-list, bounds. Each R compares the rest.
  bool ready = true;            // False: cannot bind or load; takes part all the same, and all hold.
  RowCover cover;               // What this rank owns.
};

// Lanes of the join of `world_size` ranks.
size_t JoinLanes(uint32_t world_size);
void WriteJoin(const JoinWord& word, std::span<float> lanes);

struct JoinResult {
  bool may_act = false;      // Else: observe only.
  std::string reason;        // Why not; a sentence.
  model::AttemptId attempt;  // The one that all share. Zero where the lanes make no sense.
  uint32_t epoch = 0;             // As all go on, and
  model::Boundary boundary = 0;   // the last boundary that counts as passed.
  uint32_t replicas = 1;     // Copies of the weights that the job's ranks hold.
  // Whether all ranks lay out R, and the SUM beside it, alike. Where they do not, none of them issues it.
  bool same_round = true, same_sums = true;
};
// `word` is this rank's own, `whole` what each replica must own.
JoinResult ReadJoin(const JoinWord& word, const RowCover& whole, std::span<const float> lanes);

}  // namespace gyrostat::client
