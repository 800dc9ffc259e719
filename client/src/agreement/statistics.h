// One stream for all ranks: which lanes of the two all-reduces carry a job's signals, how a rank's frame becomes lanes,
// and how reduced lanes become the frame that the leader reports (client/README.md, "One stream for all ranks").
//
// MAX lanes follow R's entries: first the maxima of attention logits, then what else is a maximum, then a digest of
// each rank. SUM lanes are a second all-reduce, where a job has one: means as (value x weight, weight), norms as
// (squares, squares of what is large, weight), so that who does not have a value weighs nothing. model/reduction.h
// says where a signal goes. A NaN or an infinity on any rank makes that value NaN; absent on all is absent.
//
// No decision of the agreement reads any of this but the maxima of attention logits (protocol.md §3).
//
// Pure but for the frames it is given; const calls are thread-safe. Allocates at construction only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/src/frame.h"
#include "client/src/settings.h"
#include "model/ids.h"
#include "model/model_spec.h"
#include "model/reduction.h"
#include "model/signal.h"

namespace gyrostat::client {

// Maxima of cross-attention and entropies of heads travel head by head in models of at most this many heads: 32 KB a
// signal, twice as much in sums. Above, entropies are reduced per layer, and cross-attention stays the leader's.
inline constexpr size_t kHeadLanesMax = 8192;

// User scalars that the reduction knows. All optional.
inline constexpr std::string_view kTokensScalar = "tokens";                  // Weight of this rank's means. Else 1.
inline constexpr std::string_view kNormShareScalar = "grad_norm_share";      // L2 of its gradients; copies once.
inline constexpr std::string_view kRankNormScalar = "rank_grad_norm";        // Digest: before any reduction.
inline constexpr std::string_view kRankTimeScalar = "rank_step_time_ms";     // Digest: without waiting for others.
inline constexpr std::string_view kChecksumScalar = "weight_checksum";       // Digest: of weights that all ranks hold.
inline constexpr std::string_view kNonfiniteRanks = "nonfinite_ranks";       // Made here: ranks with a NaN or Inf.

// What this rank is among the others.
struct RankPlace {
  uint32_t rank = 0, world_size = 1;
  uint32_t replicas = 1;            // Copies of the model in the job.
  bool sums = false;                // The job has a SUM.
  // How much of a copy it holds, (0, 1]: of each layer (empty: all of each), of what is in no layer (its layers' mean),
  // and of the whole. Over the ranks of a replica, those of a layer and of the whole add up to 1.
  std::vector<double> layer_share;
  double share = 1, whole_share = 1;
};
// Shares are rows of query and key heads, as the job's shards say. `replicas` is the join's.
RankPlace PlaceOf(const Settings& settings, uint32_t replicas);

// What the rank knows of a boundary beside its frame.
struct Moment {
  model::Boundary boundary = 0;
  double step_ms = 0;  // Since the boundary before; 0: not known.
  double own_ms = 0;   // The same without what was waited for R.
};

class Statistics {
 public:
  Statistics(const model::ModelSpec& model, RankPlace place);

  uint32_t maxima() const { return maxima_; }             // The first MAX lanes: attn_logit_max; Agreement fills them.
  uint32_t more() const { return max_lanes_ - maxima_; }  // MAX lanes after them.
  uint32_t sums() const { return sum_lanes_; }            // SUM lanes; 0 without a SUM.

  // Fills all MAX lanes but the first maxima(), which are there already, and all SUM lanes. `frame` null: this rank has
  // no report of this boundary. `sums` may be empty.
  void Write(const Frame* frame, const Moment& moment, std::span<float> max, std::span<float> sums) const;
  // Puts what all ranks said into the leader's frame of that boundary. `sums` empty: they are not known, and what they
  // would have said stays as Alone leaves it.
  void Read(std::span<const float> max, std::span<const float> sums, Frame* frame) const;
  // Nothing is known of the others: takes away what would be another quantity, or not all of it.
  void Alone(Frame* frame) const;

 private:
  static constexpr uint32_t kFixed = ~uint32_t{0};
  // One signal's lanes.
  struct Block {
    model::Signal signal = model::Signal::kNone;
    model::Reduction how = model::Reduction::kLeader;
    model::Shape shape = model::Shape::kScalar;
    bool per_head = false;
    uint32_t at = 0, values = 0;
    uint32_t width_lane = kFixed;  // MAX lane that says how many values the signal has.
  };
  struct Sample {
    double value = static_cast<double>(model::kAbsent);
    double weight = 1;
  };

  void Lay(const model::SignalInfo& info);
  uint32_t ValuesOf(model::Shape shape) const;
  Sample Take(const Frame& frame, const Block& block, uint32_t i) const;
  double ShareOf(const Block& block, uint32_t i) const;
  void WriteMax(const Frame& frame, std::span<float> max, bool* odd) const;
  void WriteSums(const Frame& frame, std::span<float> sums, bool* odd) const;
  void WriteDigest(const Frame& frame, const Moment& moment, std::span<float> max) const;
  void ReadSums(std::span<const float> max, std::span<const float> sums, Frame* frame) const;
  void ReadDigest(std::span<const float> max, Frame* frame) const;
  // Takes away this rank's norms of what it shares with others.
  void ForgetShares(Frame* frame) const;
  // Stores a block's values, each as `value(i)` says.
  template <class Value>
  void Store(const Block& block, std::span<const float> max, Frame* frame, const Value& value) const;
  // The first rank of the digest of this boundary.
  uint32_t FirstRank(model::Boundary boundary) const;

  const uint32_t layers_, heads_;
  const RankPlace place_;
  uint32_t maxima_ = 0, max_lanes_ = 0, sum_lanes_ = 0;
  uint32_t kind_lane_ = 0, time_lane_ = 0, digest_at_ = 0, slots_ = 0;
  std::vector<Block> max_, sums_;
};

}  // namespace gyrostat::client
