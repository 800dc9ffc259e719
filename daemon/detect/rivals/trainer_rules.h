// Rules of trainers and optimizers that watch one scalar: ZClip, Megatron-LM, LLM-Foundry, Lightning, llm.c.
#pragma once

#include <array>

#include "detect/rivals/rival.h"

namespace gyrostat::detect::rivals {

// bluorion-com/ZClip zclip.py: fires (clips) where z = (norm - mean) / (std + 1e-6) > 2.5; mean and variance are EMAs
// (0.97), begun from the first 25 norms and then fed with what was left after clipping: mean + 2.5 std / (z / 2.5).
// One NaN makes both NaN for good. No state in the checkpoint. Its hard limit of 1.0 on the norm is no detection.
struct ZClipState {
  std::vector<double> buffer;
  bool begun = false;
  double mean = 0, variance = 0;
  template <class Archive>
  void Fields(Archive& a) { a(buffer, begun, mean, variance); }
};
class ZClip : public RivalOf<ZClipState, false> {
 public:
  std::string_view name() const override { return "zclip"; }

 protected:
  Verdict Judge(const model::Report& report) override;
};

// NVIDIA/Megatron-LM core/rerun_state_machine.py is_unexpectedly_large: |loss| at least 10 times the largest of the
// first 100 finite ones, which then stays as it is. NaN and Inf are ignored here. In the checkpoint.
struct MegatronState {
  uint32_t samples = 0;
  double largest = 0;
  template <class Archive>
  void Fields(Archive& a) { a(samples, largest); }
};
class Megatron : public RivalOf<MegatronState, true> {
 public:
  std::string_view name() const override { return "megatron"; }

 protected:
  Verdict Judge(const model::Report& report) override;
};

// mosaicml/llm-foundry callbacks/kill_loss_spike_callback.py: the loss at least twice the mean of the window (100
// batches, or 5 % of the run where its length is declared) more than 4 times in a row, or half of the window above a
// cap (the largest loss of the first window, 10 at most). Both stop the run: critical. Not in the checkpoint.
struct LlmFoundryState {
  std::vector<double> window;
  uint32_t size = 100;
  uint32_t outliers = 0;
  uint64_t batches = 0;
  bool size_set = false, cap_set = false;
  double cap = 10;
  template <class Archive>
  void Fields(Archive& a) {
    a(window, size, outliers, batches, size_set, cap_set, cap);
    if constexpr (Archive::kLoading)
      if (window.size() > size) a.Fail();
  }
};
class LlmFoundry : public RivalOf<LlmFoundryState, false> {
 public:
  explicit LlmFoundry(const model::ModelSpec& spec) : total_steps_(spec.total_steps.value_or(0)) {}
  std::string_view name() const override { return "llm_foundry"; }

 protected:
  Verdict Judge(const model::Report& report) override;

 private:
  void SetSize();
  uint64_t total_steps_;
};

// Lightning fabric/utilities/spike.py SpikeDetection: from the second batch on, a loss above the last accepted one and
// at least 2 running means (of 10) away from the running mean; or not finite. What fires is not stored. It stops the
// run: critical. In the checkpoint.
struct LightningState {
  std::vector<double> window;
  double last = 0;
  uint64_t batches = 0;
  template <class Archive>
  void Fields(Archive& a) { a(window, last, batches); }
};
class Lightning : public RivalOf<LightningState, true> {
 public:
  std::string_view name() const override { return "lightning"; }

 protected:
  Verdict Judge(const model::Report& report) override;
};

// karpathy/llm.c llmc/outlier_detector.h: z-score of loss and gradient norm in a window of 128 with running sums, the
// value itself inside; fires (skips the update) above 7, what its own scripts pass for -sl and -sg: the default is
// off. A sum that was once NaN stays NaN: disabled for the rest of the run. Not in the checkpoint.
struct LlmcSums {
  std::vector<double> ring;
  uint32_t next = 0;
  double sum = 0, squares = 0;
  template <class Archive>
  void Fields(Archive& a) {
    a(ring, next, sum, squares);
    if constexpr (Archive::kLoading)
      if (next >= 128) a.Fail();
  }
};
struct LlmcState {
  std::array<LlmcSums, 2> series;  // Loss, gradient norm.
  template <class Archive>
  void Fields(Archive& a) { a(series); }
};
class Llmc : public RivalOf<LlmcState, false> {
 public:
  std::string_view name() const override { return "llmc"; }

 protected:
  Verdict Judge(const model::Report& report) override;
};

}  // namespace gyrostat::detect::rivals
