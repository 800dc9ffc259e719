// Says that the global gradient norm creeps up, and which layer's norm did so first.
//
// ln(norm), the median of the last 32 against the lowest such median since the warm-up ended (stats/climb.h): a slow
// doubling is information, a quadrupling a warning. Layers are followed the same way; the one that doubled first is
// the first mover. A layer that alone grows eightfold while the middle layer does not double is told as information:
// post-norm blocks that recover from their early plateau do that too.
//
// Formula: ln level - ln lowest >= ln ratio, and >= 8 standard errors of the median, for 16 reports in a row. Source:
// methods.md §10.1; ratios from the healthy runs of $GYROSTAT_RUNS (globally at most 1.9 without a change of the data,
// 2.7 with one; experiments.md §5: a creeping total norm is rare, so it must mean something).
#pragma once

#include "detect/condition.h"
#include "detect/detector.h"
#include "detect/discontinuity.h"
#include "stats/climb.h"

namespace gyrostat::detect {

struct GradGrowthOptions {
  uint32_t window_steps = 32;    // [8, 1024].
  double deviations = 8;         // [3, 100].
  double info_ratio = 2;         // Times the lowest level. > 1.
  double warning_ratio = 4;      // [info_ratio, 1e6].
  double layer_ratio = 8;        // Of one layer alone. > 1.
  uint32_t hold_reports = 16;    // In a row. [1, 10000].
  uint32_t settle_reports = 100; // From here on levels count, where no warm-up is declared. [0, 1000000].
  template <class Archive>
  void Fields(Archive& a) {
    a(window_steps, deviations, info_ratio, warning_ratio, layer_ratio, hold_reports, settle_reports);
    if constexpr (Archive::kLoading)
      if (window_steps < 8 || window_steps > 1024) a.Fail();
  }
};

class GradGrowth : public Detector {
 public:
  GradGrowth(const GradGrowthOptions& options, const model::ModelSpec& spec);

  std::string_view name() const override { return "grad_growth"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;
  void Save(base::ByteWriter* out) const override;
  bool Load(base::ByteReader* in) override;

 private:
  struct Series {
    explicit Series(const stats::ClimbOptions& options) : climb(options) {}
    stats::Climb climb;
    uint32_t held = 0;                   // Reports in a row over info_ratio.
    model::Step since = 0;               // The first of them.
    template <class Archive>
    void Fields(Archive& a) { a(climb, held, since); }
  };
  struct State {
    explicit State(const GradGrowthOptions& options);
    Series global;
    Series fresh_layer;                  // What a layer starts as; not saved.
    std::vector<Series> layers;
    Discontinuity conditions;
    uint32_t reports = 0;                // Since the attempt began.
    Condition total, layer;
    uint32_t alone_held = 0;             // Reports in a row in which a layer grew alone.
    model::Step last_over = 0;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a);
  };

  bool Follow(double norm, model::Step step, Series* series) const;
  void FollowLayers(const model::Report& report);
  void ObserveTotal(model::Step step, std::vector<model::Finding>* out);
  void ObserveLayer(model::Step step, std::vector<model::Finding>* out);
  std::optional<size_t> FirstMover() const;
  void Relearn();

  GradGrowthOptions options_;
  uint64_t warmup_steps_;
  State state_;
};

}  // namespace gyrostat::detect
