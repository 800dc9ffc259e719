// Layers that no longer write: what their branches add is below 1/512 of the stream.
//
// ratio = rms(branch) / rms(stream), the larger of attention and feed-forward. Below 2^-9 an addend is always lost in
// bf16 (methods.md §8.3), and in any format it changes nothing that matters: deep pre-norm layers end there when the
// stream grows faster than what is added (curse of depth, arXiv 2502.05795). A layer counts after 64 reports in a row,
// so that output projections that start at zero have begun to move; nothing is a warning while the warm-up runs.
#pragma once

#include "detect/condition.h"
#include "detect/stateful.h"
#include "detect/warmup_phase.h"

namespace gyrostat::detect {

struct DeadDepthOptions {
  double dead_ratio = 1.0 / 512;   // (0, 1).
  uint32_t dead_reports = 64;      // In a row, per layer. [1, 60000].
  double warning_share = 0.25;     // Of the layers, at least 2. (0, 1].
  template <class Archive>
  void Fields(Archive& a) { a(dead_ratio, dead_reports, warning_share); }
};

class DeadDepth : public Stateful<DeadDepth> {
 public:
  DeadDepth(const DeadDepthOptions& options, const model::ModelSpec& spec);

  std::string_view name() const override { return "dead_depth"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;

 private:
  friend class Stateful<DeadDepth>;
  static constexpr uint8_t kStateVersion = 2;
  struct State {
    explicit State(const model::ModelSpec& spec) : warmup(spec) {}
    WarmupPhase warmup;
    std::vector<uint16_t> silent;  // Per layer: reports in a row below dead_ratio, saturating.
    Sustained dead;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) {
      a(warmup, silent, dead, next_key);
      if constexpr (Archive::kLoading)
        if (silent.size() > model::kLayersMax) a.Fail();
    }
  };
  State Fresh() const { return State(spec_); }

  DeadDepthOptions options_;
  model::ModelSpec spec_;
  State state_;
};

}  // namespace gyrostat::detect
