// The part of a model that a rank holds: rows of W_q and W_k of its heads, whose product grows. Everything is float32
// arithmetic in a fixed order, so that equal histories give equal bits.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "model/signal.h"
#include "remedy/qk_clip.h"
#include "simulation/plan.h"

namespace gyrostat::simulation {

class ToyModel {
 public:
  ToyModel(const Plan& plan, uint32_t shard) : plan_(&plan), shard_(shard) {
    for (uint32_t h = 0; h < plan.head_count(); ++h) q_.push_back(2 + 0.1f * static_cast<float>(h));
    for (uint32_t k = 0; k < plan.layers * plan.kv_heads; ++k) k_.push_back(4);
  }

  bool Owns(uint32_t head) const { return KeyOf(head) % plan_->shards == shard_; }

  // The maxima of forward `b` on the batch of `replica`; absent where the head is another rank's.
  std::vector<float> Forward(uint64_t b, uint32_t replica) const {
    std::vector<float> maxima(q_.size(), model::kAbsent);
    for (uint32_t h = 0; h < q_.size(); ++h) {
      if (!Owns(h)) continue;
      Dice noise(plan_->seed ^ b << 20 ^ uint64_t{replica} << 10 ^ h);
      maxima[h] = q_[h] * k_[KeyRow(h)] * static_cast<float>(0.85 + 0.3 * noise.Real());
    }
    return maxima;
  }

  // The optimizer's step with `pace` of the usual rate: the same on all copies.
  void Grow(uint64_t b, double pace) {
    for (uint32_t h = 0; h < q_.size(); ++h) {
      if (!Owns(h)) continue;
      Dice step(plan_->seed ^ b << 24 ^ h);
      q_[h] *= static_cast<float>(1 + pace * plan_->growth * step.Real());
    }
    for (uint32_t k = 0; k < k_.size(); ++k)
      if (k % plan_->kv_heads % plan_->shards == shard_) k_[k] *= static_cast<float>(1 + pace * plan_->growth / 3);
  }

  // Scales the rows that are here. Stops before the `limit`-th: something went wrong halfway.
  void Scale(const remedy::ClipPlan& plan, size_t limit) {
    size_t done = 0;
    for (const remedy::HeadFactor& f : plan.q) {
      if (done++ >= limit) return;
      const uint32_t head = f.layer * plan_->heads + f.head;
      if (Owns(head)) q_[head] *= f.factor;
    }
    for (const remedy::HeadFactor& f : plan.k) {
      if (done++ >= limit) return;
      if (f.head % plan_->shards == shard_) k_[f.layer * plan_->kv_heads + f.head] *= f.factor;
    }
  }

  // A beta of a layer: the weights of its branches, for which the keys stand here.
  void ScaleLayer(uint32_t layer, float factor) {
    for (uint32_t k = 0; k < plan_->kv_heads; ++k)
      if (k % plan_->shards == shard_) k_[layer * plan_->kv_heads + k] *= factor;
  }

  // Bits of what this rank holds of a head; equal on all copies of the head.
  uint64_t BitsOf(uint32_t head) const {
    return uint64_t{std::bit_cast<uint32_t>(q_[head])} << 32 | std::bit_cast<uint32_t>(k_[KeyRow(head)]);
  }
  // The trainer's own repair: copies what another rank holds.
  void CopyFrom(const ToyModel& other) {
    q_ = other.q_;
    k_ = other.k_;
  }

 private:
  uint32_t KeyOf(uint32_t head) const { return head % plan_->heads / (plan_->heads / plan_->kv_heads); }
  uint32_t KeyRow(uint32_t head) const { return head / plan_->heads * plan_->kv_heads + KeyOf(head); }

  const Plan* plan_;
  uint32_t shard_;
  std::vector<float> q_, k_;
};

}  // namespace gyrostat::simulation
