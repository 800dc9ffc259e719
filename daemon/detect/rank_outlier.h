// One rank disagrees with the others (`rank_digest`): its data, its hardware, or a replica that is no longer one.
//
// *Weights*: checksums of replicas that should be equal differ. One report is a warning (a checksum taken on either
// side of a boundary), two in a row critical: all that follows is wrong. *Values*: the loss, or ln of the gradient
// norm, of one rank is far from the median over ranks, in units of 1.4826 MAD (floored: equal ranks must not make
// noise an outlier), in most of its recent reports: an offence adds 2, agreement takes 1 away. A single bad batch on
// a rank is noise. A value that is not finite while those of most ranks are counts as far. *Slow*: its step time
// stays far above the median, by more than processes that share a processor take from each other; information. Needs
// at least 4 ranks that report (3 for checksums to name the odd one).
//
// Source: median/MAD over ranks, methods.md §10.1 and §10.4 (common mode first); Megatron's re-run idea, §6.
#pragma once

#include "detect/condition.h"
#include "detect/stateful.h"

namespace gyrostat::detect {

struct RankOutlierOptions {
  double far_deviations = 8;       // [3, 100].
  double loss_floor = 0.02;        // Of the median loss: the smallest deviation. > 0.
  double grad_floor = 0.1;         // Of ln(norm). > 0.
  uint32_t offences = 16;          // That make a warning: 8 far reports in a row, or most of more. [2, 200].
  double slow_ratio = 1.5;         // Of the median step time. > 1.
  double slow_ms_min = 10;         // Above it at least. >= 0.
  uint32_t slow_offences = 64;     // [2, 200].
  uint32_t quiet_reports = 32;     // Without one: over. [1, 10000].
  template <class Archive>
  void Fields(Archive& a) {
    a(far_deviations, loss_floor, grad_floor, offences, slow_ratio, slow_ms_min, slow_offences, quiet_reports);
  }
};

class RankOutlier : public Stateful<RankOutlier> {
 public:
  explicit RankOutlier(const RankOutlierOptions& options) : options_(options) {}

  std::string_view name() const override { return "rank_outlier"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;

 private:
  friend class Stateful<RankOutlier>;
  static constexpr uint8_t kStateVersion = 2;
  enum Field : uint32_t { kRank = 0, kLoss = 1, kGrad = 2, kTime = 3, kChecksum = 4 };
  struct Offender {
    uint32_t rank = 0;
    std::array<uint8_t, 3> offences{};  // In loss, gradient norm, step time.
    template <class Archive>
    void Fields(Archive& a) { a(rank, offences); }
  };
  struct State {
    std::vector<Offender> offenders;   // Ranks with an offence; at most kRanksMax.
    Sustained weights, slow;
    std::array<Sustained, 2> values;   // Loss, gradient norm.
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) { a(offenders, weights, slow, values, next_key); }
  };
  // Far ranks of one field in one report.
  struct Spread {
    double median = 0, deviation = 0;
    bool known = false;
  };

  Spread SpreadOf(std::span<const float> digest, Field field) const;
  bool IsFar(float value, Field field, const Spread& spread) const;
  void Count(uint32_t rank, Field field, bool far);
  void ObserveField(std::span<const float> digest, Field field, const Sustained::Context& context);
  void ObserveWeights(std::span<const float> digest, const Sustained::Context& context);
  State Fresh() const { return State(); }

  RankOutlierOptions options_;
  State state_;
};

}  // namespace gyrostat::detect
