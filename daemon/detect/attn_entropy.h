// Says that attention rows have collapsed onto single keys: the mean row entropy of heads is near zero and was not.
//
// A head below 0.05 nats for 10 reports in a row that once stood at four times that is collapsed. One head is
// information (some heads copy the previous token all their life); a twentieth of the heads, two at least, a warning.
// Over when none was collapsed for 64 reports. Absolute: valid from step 1, needs no baseline but
// the highest entropy each head has had.
//
// Formula: the counts above. Source: arXiv 2303.06296 (entropy collapse goes with instability; no causality claimed);
// experiments.md §7: 0.05 for 10 steps never happened in 54 healthy runs and did at steps 188-191 of S1.
#pragma once

#include "detect/condition.h"
#include "detect/stateful.h"

namespace gyrostat::detect {

struct AttnEntropyOptions {
  double entropy_min_nats = 0.05;  // > 0.
  double fall_ratio = 4;           // A head must have stood at so many times that. >= 1.
  uint32_t hold_reports = 10;      // In a row. [1, 1000].
  double heads_share = 0.05;       // Of the heads, 2 at least: a warning. (0, 1].
  uint32_t quiet_reports = 64;     // In a row without a collapsed head: over. [1, 100000].
  template <class Archive>
  void Fields(Archive& a) { a(entropy_min_nats, fall_ratio, hold_reports, heads_share, quiet_reports); }
};

class AttnEntropy : public Stateful<AttnEntropy> {
 public:
  AttnEntropy(const AttnEntropyOptions& options, const model::ModelSpec& spec);

  std::string_view name() const override { return "attn_entropy"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;

 private:
  friend class Stateful<AttnEntropy>;
  static constexpr uint8_t kStateVersion = 1;
  struct State {
    std::vector<float> highest;   // Per head: largest entropy so far; 0 before the first.
    std::vector<uint16_t> low;    // Per head: reports in a row below the line, saturating.
    Condition condition;
    uint32_t most = 0;            // Collapsed at once.
    uint32_t quiet = 0;
    model::Step last_collapsed = 0;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) {
      a(highest, low, condition, most, quiet, last_collapsed, next_key);
      if constexpr (Archive::kLoading)
        if (highest.size() != low.size()) a.Fail();
    }
  };
  struct Look {
    uint32_t collapsed = 0, measured = 0;
    size_t first = 0;  // Of the collapsed: the one that has been low for longest.
  };

  Look Follow(std::span<const float> entropies);
  void Tell(const model::Report& report, const Look& look, std::vector<model::Finding>* out);
  State Fresh() const { return State(); }

  AttnEntropyOptions options_;
  uint32_t layers_, heads_;
  State state_;
};

}  // namespace gyrostat::detect
