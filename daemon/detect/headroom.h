// How many steps until the residual stream outgrows fp16 or bf16, and norms whose eps swamps their input.
//
// *Overflow* (compute dtype fp16, whose largest value is 65504, or bf16, 3.4e38; fp8 tensors are scaled): a_t is the
// largest entry over layers and tokens, max over layers of |x| + |branch|, because sums overflow although each term
// fits. The branch counts as its RMS times sqrt(2 ln d), the largest of d Gaussian entries; so does the stream where
// only `hidden_ms` is reported. Growth is fitted on the newest 64 values (stats/growth.h: ln a or a, whichever fits;
// methods.md §8.2) and forecast with the slope's 95 % interval; a value 4 times away from the median of the newest 3
// enters as that median. From experiments.md §5: overflow came 80 steps after 8192 = 1/8 of the range, no healthy run
// passed 500. *Eps*: an RMSNorm's output is 1/sqrt(1 + eps/ms) of what it should be (methods.md §8.3).
#pragma once

#include "detect/condition.h"
#include "detect/recent_median.h"
#include "detect/stateful.h"
#include "stats/growth.h"

namespace gyrostat::detect {

struct HeadroomOptions {
  double warning_share = 0.125;     // Of the range. (0, 1).
  double critical_share = 0.5;      // A branch as large as the stream would overflow. (warning_share, 1].
  double forecast_share = 1.0 / 32; // A forecast alone warns from here on. (0, warning_share].
  double horizon_steps = 1000;      // And when overflow may be nearer than this (upper end of the slope). [1, 1e6].
  double near_steps = 200;          // From warning_share on, nearer than this is critical. [1, horizon_steps].
  uint32_t fit_reports = 64;        // [32, 256].
  uint32_t level_reports = 3;       // In a row over a level. [1, 1000].
  uint32_t forecast_reports = 8;    // In a row that forecast it. [1, 1000].
  double eps_info = 0.1;            // eps over the mean square: 5 % of the output is lost. > 0.
  double eps_warning = 1;           // 29 % are. > eps_info.
  uint32_t eps_reports = 32;        // In a row. [1, 10000].
  template <class Archive>
  void Fields(Archive& a) {
    a(warning_share, critical_share, forecast_share, horizon_steps, near_steps, fit_reports, level_reports,
      forecast_reports, eps_info, eps_warning, eps_reports);
    if constexpr (Archive::kLoading)
      if (fit_reports < 32 || fit_reports > stats::kGrowthPointsMax) a.Fail();
  }
};

class Headroom : public Stateful<Headroom> {
 public:
  Headroom(const HeadroomOptions& options, const model::ModelSpec& spec);

  std::string_view name() const override { return "headroom"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;
  std::optional<double> StepsLeft() const override;

 private:
  friend class Stateful<Headroom>;
  static constexpr uint8_t kStateVersion = 2;
  struct State {
    std::vector<double> steps, logs;  // Of the newest largest entries, oldest first; logs are ln a.
    RecentMedian<3> recent;           // Of ln a.
    uint32_t critical_run = 0;        // Reports in a row above critical_share.
    uint32_t high_run = 0;            // Above warning_share.
    uint32_t forecast_run = 0;        // That forecast an overflow.
    Sustained overflow, swamped;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) {
      a(steps, logs, recent, critical_run, high_run, forecast_run, overflow, swamped, next_key);
      if constexpr (Archive::kLoading)
        if (steps.size() != logs.size() || steps.size() > stats::kGrowthPointsMax) a.Fail();
    }
  };
  struct Look {
    double largest = 0;   // 0: not measured.
    size_t at = 0;        // Its index.
    size_t size = 0;      // Of the array it was found in.
    uint32_t high = 0;    // Layers above warning_share.
    bool estimated = false;  // From mean squares.
  };

  Look LookAt(const model::Report& report) const;
  std::optional<stats::GrowthFit> Fit(model::Step step, double largest);
  void ObserveOverflow(const model::Report& report, std::vector<model::Finding>* out);
  std::optional<model::Severity> SeverityOf(double largest, const std::optional<stats::GrowthFit>& fit);
  void Fill(const Look& look, const std::optional<stats::GrowthFit>& fit, model::Finding* finding) const;
  void ObserveEps(const model::Report& report, std::vector<model::Finding>* out);
  uint32_t LayerAt(size_t at, size_t size) const;
  State Fresh() const { return State(); }

  HeadroomOptions options_;
  model::ModelSpec spec_;
  double range_;      // The largest finite value; 0 where it cannot be reached.
  double gaussian_;   // sqrt(2 ln d); 0 where d is not known.
  State state_;
};

}  // namespace gyrostat::detect
