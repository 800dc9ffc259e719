#include "client/src/agreement/statistics.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <utility>

#include "client/src/agreement/lanes.h"

namespace gyrostat::client {
namespace {

using model::Reduction;
using model::Shape;
using model::Signal;

constexpr double kAbsent = static_cast<double>(model::kAbsent);
constexpr double kMax = static_cast<double>(FLT_MAX);
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr float kNaNLane = std::numeric_limits<float>::quiet_NaN();

// Weights are tokens times this, so that no sum over 2^20 ranks of any float overflows at up to 2^20 tokens a rank.
constexpr double kTokenScale = 0x1p-40;
constexpr double kTokensMax = 0x1p40;
// Squares of values below kLarge are summed times kSmallScale, those of larger ones in a lane of their own, of values
// times kLargeScale: from 2^-83 up, in float32, over 2^20 ranks, none underflows or overflows.
constexpr double kLarge = 0x1p32;
constexpr double kSmallScale = 0x1p40;
constexpr double kLargeScale = 0x1p-76;
constexpr size_t kMeanLanes = 2, kSquareLanes = 3;
constexpr size_t kDigestLanes = model::kRankDigestFields - 1;  // The rank follows from the boundary.
constexpr size_t kOddRanksLane = 0;                            // SUM lanes begin with it.
constexpr float kUnknownKind = 5;                              // Weaker than every logit kind.

bool IsNumber(double v) { return std::isfinite(v) && std::fabs(v) < kMax; }

size_t Index(Signal signal) { return static_cast<size_t>(signal); }

// False: an array that has no value.
bool Recorded(const Frame& frame, Signal signal) { return model::IsScalar(signal) || frame.Count(signal) != 0; }

// A scalar on its way into the MAX: absent loses; NaN and both infinities win.
float ScalarLane(double v) {
  if (model::IsAbsent(v)) return -FLT_MAX;
  return IsNumber(v) ? static_cast<float>(v) : FLT_MAX;
}

double FromScalarLane(float lane) { return static_cast<double>(FromLane(lane)); }

// NaN, or a float.
float Fitting(double v) {
  if (model::IsAbsent(v)) return model::kAbsent;
  return IsNumber(v) ? static_cast<float>(v) : kNaNLane;
}

double UserValue(const Frame& frame, std::string_view name) {
  for (uint32_t i = 0; i < frame.user_count; ++i)
    if (std::string_view(frame.user[i].name, frame.user[i].name_size) == name) return frame.user[i].value;
  return kAbsent;
}

void AddUserScalar(std::string_view name, double value, Frame* frame) {
  if (frame->user_count == kUserScalarsMax) return;
  UserScalar& scalar = frame->user[frame->user_count++];
  name.copy(scalar.name, name.size());
  scalar.name_size = static_cast<uint32_t>(name.size());
  scalar.value = value;
}

double TokenWeight(const Frame& frame) {
  const double tokens = UserValue(frame, kTokensScalar);
  return kTokenScale * (tokens >= 0 && tokens < INFINITY ? std::min(tokens, kTokensMax) : 1);
}

void WriteMean(double value, double weight, float* lanes) {
  if (model::IsAbsent(value)) return;
  lanes[0] = IsNumber(value) ? Fitting(value * weight) : kNaNLane;
  lanes[1] = static_cast<float>(weight);
}

double ReadMean(const float* lanes) {
  if (!std::isfinite(lanes[0]) || !std::isfinite(lanes[1])) return kNaN;
  return lanes[1] > 0 ? static_cast<double>(lanes[0]) / static_cast<double>(lanes[1]) : kAbsent;
}

// A norm below zero says that nothing was measured (DeepSpeed's -1).
void WriteSquares(double value, double factor, double weight, float* lanes) {
  if (model::IsAbsent(value) || value < 0) return;
  const bool large = value >= kLarge;
  const double root = value * (large ? kLargeScale : 1), squares = root * root * factor * (large ? 1 : kSmallScale);
  lanes[large ? 1 : 0] = IsNumber(value) ? static_cast<float>(squares) : kNaNLane;
  lanes[2] = static_cast<float>(weight);
}

// Shares of flat shards that cut layers anyhow may add up to more than there are copies: `copies` bounds them.
double ReadSquares(const float* lanes, double copies) {
  if (!std::isfinite(lanes[0]) || !std::isfinite(lanes[1]) || !std::isfinite(lanes[2])) return kNaN;
  if (!(lanes[2] > 0)) return kAbsent;
  const double squares = static_cast<double>(lanes[0]) / kSmallScale +
                         static_cast<double>(lanes[1]) / (kLargeScale * kLargeScale);
  return std::sqrt(squares / std::min(static_cast<double>(lanes[2]), copies));
}

void WriteCount(double value, float* lanes) {
  if (model::IsAbsent(value)) return;
  lanes[0] = Fitting(value);
  lanes[1] = 1;
}

double ReadCount(const float* lanes) {
  if (!std::isfinite(lanes[0])) return kNaN;
  return lanes[1] > 0 ? static_cast<double>(lanes[0]) : kAbsent;
}

size_t LanesPerValue(Reduction how) {
  return how == Reduction::kSquares || how == Reduction::kMeanSquares ? kSquareLanes : kMeanLanes;
}

// 24 bits, equal for equal sums: a float holds them.
double Checksum(double sum) {
  if (!(sum >= 0 && sum < 0x1p53) || sum != std::floor(sum)) return sum;
  const auto bits = static_cast<uint64_t>(sum);
  return static_cast<double>((bits ^ bits >> 24 ^ bits >> 48) & 0xffffff);
}

}  // namespace

RankPlace PlaceOf(const Settings& settings, uint32_t replicas) {
  RankPlace place;
  place.rank = settings.rank;
  place.world_size = settings.world_size;
  place.replicas = std::max(replicas, 1u);
  place.sums = settings.collective.sum_begin != nullptr;
  const uint32_t layers = settings.model.layers;
  const double rows = (static_cast<double>(settings.model.heads) + settings.model.KvHeads()) *
                      std::max(settings.model.head_dim, 1u);
  if (settings.shards.empty() || !(rows > 0)) return place;
  place.layer_share.assign(layers, 0);
  for (const gyro_shard& shard : settings.shards)  // Rows first: a sum of sixths is less than one.
    place.layer_share[shard.layer] += static_cast<double>(shard.row_end - shard.row_begin);
  double sum = 0, owned = 0;
  for (double& share : place.layer_share) {
    share = std::min(share / rows, 1.0);
    sum += share;
    owned += share > 0 ? 1 : 0;
  }
  if (owned > 0) place.share = sum / owned;
  place.whole_share = sum / layers;
  return place;
}

Statistics::Statistics(const model::ModelSpec& model, RankPlace place)
    : layers_(model.layers), heads_(model.heads), place_(std::move(place)) {
  maxima_ = layers_ * heads_;
  max_lanes_ = maxima_;
  kind_lane_ = max_lanes_++;
  time_lane_ = max_lanes_++;
  if (place_.sums) sum_lanes_ = kOddRanksLane + 1;
  for (const model::SignalInfo& info : model::Signals()) Lay(info);
  digest_at_ = max_lanes_;
  slots_ = std::min(place_.world_size, model::kRankSlotsMax);
  max_lanes_ += slots_ * static_cast<uint32_t>(kDigestLanes);
}

void Statistics::Lay(const model::SignalInfo& info) {
  Block block{.signal = info.signal,
              .how = model::ReductionOf(info.signal),
              .shape = info.shape,
              .per_head = info.shape == Shape::kLayerHead,
              .values = info.signal == Signal::kAttnLogitMax ? maxima_ : ValuesOf(info.shape)};
  if (info.shape == Shape::kLayerOrLayerHead) block.per_head = block.values != layers_;
  const bool summed = block.how == Reduction::kMean || block.how == Reduction::kSquares ||
                      block.how == Reduction::kMeanSquares || block.how == Reduction::kSum ||
                      block.how == Reduction::kGiven;
  const bool maximum = block.how == Reduction::kMax || block.how == Reduction::kMin || block.how == Reduction::kGiven ||
                       block.how == Reduction::kSum;
  if (block.values == 0 || (!maximum && !summed)) return;
  // The MAX has the same lanes with and without a SUM, so that ranks that differ in it still share R.
  if (block.shape == Shape::kBoundary || (block.shape == Shape::kLayerOrLayerHead && block.per_head))
    block.width_lane = max_lanes_++;
  if (info.signal == Signal::kAttnLogitMax) {
    block.at = 0;  // Where R has them.
    max_.push_back(block);
  } else if (maximum) {
    block.at = max_lanes_;
    max_lanes_ += block.values;
    max_.push_back(block);
  }
  if (!summed || !place_.sums) return;
  if (block.how == Reduction::kGiven) block.how = Reduction::kSquares;  // From shares.
  block.at = sum_lanes_;
  sum_lanes_ += block.values * static_cast<uint32_t>(LanesPerValue(block.how));
  sums_.push_back(block);
}

uint32_t Statistics::ValuesOf(Shape shape) const {
  const size_t heads = size_t{layers_} * heads_;
  switch (shape) {
    case Shape::kScalar:
      return 1;
    case Shape::kLayer:
      return layers_;
    case Shape::kBoundary:
      return layers_ == 0 ? 0 : layers_ + 1;
    case Shape::kLayerHead:
      return heads <= kHeadLanesMax ? static_cast<uint32_t>(heads) : 0;
    case Shape::kLayerOrLayerHead:
      return heads > 0 && heads <= kHeadLanesMax ? static_cast<uint32_t>(heads) : layers_;
    case Shape::kRankDigest:
      break;
  }
  return 0;
}

Statistics::Sample Statistics::Take(const Frame& frame, const Block& block, uint32_t i) const {
  if (block.shape == Shape::kScalar) return {frame.scalars[Index(block.signal)]};
  const uint32_t count = frame.Count(block.signal);
  const float* values = frame.Array(block.signal);
  if (count == block.values) return {static_cast<double>(values[i])};
  if (block.shape == Shape::kBoundary && count == layers_)  // Outputs of the blocks: boundary 0 is missing.
    return i == 0 ? Sample{} : Sample{static_cast<double>(values[i - 1])};
  if (block.shape != Shape::kLayerOrLayerHead || count == 0 || count % layers_ != 0) return {};
  if (block.per_head) return count == layers_ ? Sample{static_cast<double>(values[i / heads_])} : Sample{};
  // Heads where lanes are per layer: their mean.
  const uint32_t heads = count / layers_;
  double sum = 0, present = 0;
  for (const float* at = values + size_t{i} * heads; at != values + size_t{i + 1} * heads; ++at) {
    if (*at == model::kAbsent) continue;
    sum += static_cast<double>(*at);
    present += 1;
  }
  return present > 0 ? Sample{sum / present, present / heads} : Sample{};
}

double Statistics::ShareOf(const Block& block, uint32_t i) const {
  if (block.signal == Signal::kGradNorm) return place_.whole_share;
  return block.shape != Shape::kScalar && i < place_.layer_share.size() ? place_.layer_share[i] : place_.share;
}

void Statistics::Write(const Frame* frame, const Moment& moment, std::span<float> max, std::span<float> sums) const {
  if (max.size() != max_lanes_) return;
  std::fill(max.begin() + maxima_, max.end(), -FLT_MAX);
  std::fill(sums.begin(), sums.end(), 0.0f);
  if (frame == nullptr) return;
  bool odd = std::find(max.begin(), max.begin() + maxima_, FLT_MAX) != max.begin() + maxima_;
  if (frame->Count(Signal::kAttnLogitMax) != 0)
    max[kind_lane_] = frame->logit_kind == model::LogitKind::kUnknown ? kUnknownKind
                                                                      : static_cast<float>(frame->logit_kind);
  if (moment.step_ms > 0) max[time_lane_] = ScalarLane(moment.step_ms);
  WriteMax(*frame, max, &odd);
  WriteDigest(*frame, moment, max);
  if (sums.empty() || sums.size() != sum_lanes_) return;
  WriteSums(*frame, sums, &odd);
  sums[kOddRanksLane] = odd ? 1 : 0;
}

void Statistics::WriteMax(const Frame& frame, std::span<float> max, bool* odd) const {
  for (const Block& block : max_) {
    if (block.signal == Signal::kAttnLogitMax || !Recorded(frame, block.signal)) continue;
    if (block.width_lane != kFixed)
      max[block.width_lane] = static_cast<float>(frame.Count(block.signal));
    for (uint32_t i = 0; i < block.values; ++i) {
      const double value = Take(frame, block, i).value;
      float& lane = max[block.at + i];
      if (model::IsAbsent(value)) continue;
      if (block.how == Reduction::kMin) lane = ScalarLane(-value);
      else lane = block.shape == Shape::kScalar ? ScalarLane(value) : ToLane(static_cast<float>(value));
      *odd |= lane == FLT_MAX;
    }
  }
  for (const Block& block : sums_)
    if (block.width_lane != kFixed && Recorded(frame, block.signal))
      max[block.width_lane] = static_cast<float>(frame.Count(block.signal));
}

void Statistics::WriteSums(const Frame& frame, std::span<float> sums, bool* odd) const {
  const double tokens = TokenWeight(frame);
  for (const Block& block : sums_) {
    if (!Recorded(frame, block.signal)) continue;
    const size_t lanes = LanesPerValue(block.how);
    for (uint32_t i = 0; i < block.values; ++i) {
      Sample sample = Take(frame, block, i);
      if (block.signal == Signal::kGradNorm) sample.value = UserValue(frame, kNormShareScalar);
      float* at = sums.data() + block.at + i * lanes;
      if (block.how == Reduction::kMean) WriteMean(sample.value, sample.weight * tokens, at);
      if (block.how == Reduction::kSquares) WriteSquares(sample.value, 1, ShareOf(block, i), at);
      if (block.how == Reduction::kMeanSquares) WriteSquares(sample.value, ShareOf(block, i), ShareOf(block, i), at);
      if (block.how == Reduction::kSum) WriteCount(sample.value, at);
      *odd |= !model::IsAbsent(sample.value) && !IsNumber(sample.value);
    }
  }
}

uint32_t Statistics::FirstRank(model::Boundary boundary) const {
  const uint32_t groups = (place_.world_size + slots_ - 1) / slots_;
  return static_cast<uint32_t>(boundary % groups) * slots_;
}

void Statistics::WriteDigest(const Frame& frame, const Moment& moment, std::span<float> max) const {
  const uint32_t first = FirstRank(moment.boundary);
  if (place_.rank < first || place_.rank - first >= slots_) return;
  float* slot = max.data() + digest_at_ + (place_.rank - first) * kDigestLanes;
  const double norm = UserValue(frame, kRankNormScalar), time = UserValue(frame, kRankTimeScalar);
  slot[0] = ScalarLane(frame.scalars[Index(Signal::kLoss)]);
  slot[1] = ScalarLane(model::IsAbsent(norm) ? frame.scalars[Index(Signal::kGradNorm)] : norm);
  slot[2] = ScalarLane(!model::IsAbsent(time) ? time : moment.own_ms > 0 ? moment.own_ms : kAbsent);
  slot[3] = ScalarLane(Checksum(UserValue(frame, kChecksumScalar)));
}

template <class Value>
void Statistics::Store(const Block& block, std::span<const float> max, Frame* frame, const Value& value) const {
  if (block.shape == Shape::kScalar) {
    frame->scalars[Index(block.signal)] = value(0);
    return;
  }
  uint32_t width = block.values;
  if (block.width_lane != kFixed) {
    const float lane = max[block.width_lane];
    if (lane != static_cast<float>(width)) width = lane == static_cast<float>(layers_) ? layers_ : 0;
  }
  if (width == 0 || !frame->Resize(block.signal, width)) {
    frame->Resize(block.signal, 0);
    return;
  }
  float* values = frame->Array(block.signal);
  const bool outputs = width != block.values && block.shape == Shape::kBoundary;
  bool any = false;
  for (uint32_t i = 0; i < width; ++i) {
    // Fewer values than lanes: outputs of the blocks, or one value for all heads of a layer.
    values[i] = Fitting(value(width == block.values ? i : outputs ? i + 1 : i * heads_));
    any |= values[i] != model::kAbsent;
  }
  if (!any) frame->Resize(block.signal, 0);
}

void Statistics::Read(std::span<const float> max, std::span<const float> sums, Frame* frame) const {
  if (max.size() != max_lanes_) return Alone(frame);
  if (maxima_ == 0) frame->Resize(Signal::kAttnLogitMax, 0);
  for (const Block& block : max_)
    Store(block, max, frame, [&](uint32_t i) {
      const double value = FromScalarLane(max[block.at + i]);
      return block.how == Reduction::kMin && !model::IsAbsent(value) ? -value : value;
    });
  if (frame->Count(Signal::kAttnLogitMax) != 0) {
    const float kind = max[kind_lane_];
    frame->logit_kind = kind >= 1 && kind < kUnknownKind ? static_cast<model::LogitKind>(static_cast<int>(kind))
                                                         : model::LogitKind::kUnknown;
  }
  if (IsNumber(static_cast<double>(max[time_lane_])) && max[time_lane_] > 0)
    frame->step_time_ms = static_cast<double>(max[time_lane_]);
  ReadDigest(max, frame);
  if (sums.size() == sum_lanes_ && !sums.empty()) ReadSums(max, sums, frame);
  else ForgetShares(frame);
}

void Statistics::ReadSums(std::span<const float> max, std::span<const float> sums, Frame* frame) const {
  for (const Block& block : sums_) {
    if (block.signal == Signal::kGradNorm && !model::IsAbsent(frame->scalars[Index(Signal::kGradNorm)])) continue;
    const size_t lanes = LanesPerValue(block.how);
    Store(block, max, frame, [&](uint32_t i) {
      const float* at = sums.data() + block.at + i * lanes;
      return block.how == Reduction::kMean  ? ReadMean(at)
             : block.how == Reduction::kSum ? ReadCount(at)
                                            : ReadSquares(at, place_.replicas);
    });
  }
  const auto odd = static_cast<double>(sums[kOddRanksLane]);
  if (odd > 0) AddUserScalar(kNonfiniteRanks, odd, frame);
}

void Statistics::ReadDigest(std::span<const float> max, Frame* frame) const {
  const uint32_t first = FirstRank(frame->boundary);
  const uint32_t ranks = std::min(slots_, place_.world_size - first);
  if (!frame->Resize(Signal::kRankDigest, size_t{ranks} * model::kRankDigestFields)) {
    frame->Resize(Signal::kRankDigest, 0);
    return;
  }
  float* out = frame->Array(Signal::kRankDigest);
  for (uint32_t slot = 0; slot < ranks; ++slot) {
    *out++ = static_cast<float>(first + slot);
    for (size_t field = 0; field < kDigestLanes; ++field)
      *out++ = FromLane(max[digest_at_ + slot * kDigestLanes + field]);
  }
}

void Statistics::Alone(Frame* frame) const {
  for (const Block& block : max_)
    if (block.shape == Shape::kLayerHead) frame->Resize(block.signal, 0);
  frame->Resize(Signal::kAttnLogitMax, 0);
  ForgetShares(frame);
}

void Statistics::ForgetShares(Frame* frame) const {
  for (const Block& block : sums_) {
    const bool share = block.how == Reduction::kSquares || block.how == Reduction::kMeanSquares;
    if (!share || block.signal == Signal::kGradNorm) continue;
    if (block.shape == Shape::kScalar) {
      if (place_.share < 1) frame->scalars[Index(block.signal)] = kAbsent;
      continue;
    }
    for (uint32_t i = 0; i < frame->Count(block.signal); ++i)
      if (ShareOf(block, i) < 1) frame->Array(block.signal)[i] = model::kAbsent;
  }
}

}  // namespace gyrostat::client
