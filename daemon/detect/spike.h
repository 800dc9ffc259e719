// Says that the loss, or the global gradient norm, jumped above what it has been, and whether it came back ("healed").
//
// What is usual, and how far from it is a spike, is SpikeLevel's (spike_level.h). While a spike is open nothing enters
// it: a long spike cannot become the new normal before it has been called what it is. A spike is robust first, so many
// deviations of the run's own noise; that it is `gross_ratio` times the level only makes it worse. Among the first
// reports, where the noise is not known, a gross value is information, and a warning where it is beyond what so few
// values allow, or the fourth in a row.
//
// Gradient norms also burst without one that stands out: `lasting_records` in a row above `exit_sigmas` begin a spike
// that is a warning at once (three of 4 deviations: p = 3e-14 for independent Gaussian noise; methods.md §10.1 asks
// for persistence too). Of 44 healthy runs the largest is 3.3, at a change of the batch. A loss has such levels of its
// data (4.2 at a change of the text), so it is not judged so.
#pragma once

#include "detect/detector.h"
#include "detect/discontinuity.h"
#include "detect/spike_level.h"

namespace gyrostat::detect {

class Spike : public Detector {
 public:
  explicit Spike(const SpikeOptions& options);

  std::string_view name() const override {
    return options_.signal == model::Signal::kLoss ? "loss_spike" : "grad_spike";
  }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;
  void Save(base::ByteWriter* out) const override;
  bool Load(base::ByteReader* in) override;

 private:
  struct Episode {
    Episode() {}              // Spelled out: clang 14 does not see a defaulted one inside the class.
    model::Finding finding;   // As last said.
    SpikeLimits limits;       // As they were when it began.
    uint32_t elapsed = 0;     // Reports since it began, this one included.
    uint32_t records = 0;     // Of them above `enter`.
    uint32_t in_a_row = 0;    // Of those, until now.
    uint32_t quiet = 0;       // Of them at or below `exit`, in a row until now.
    model::Step last_bad = 0;
    double peak = 0;          // In the signal's unit.
    template <class Archive>
    void Fields(Archive& a) { a(finding, limits, elapsed, records, in_a_row, quiet, last_bad, peak); }
  };
  struct State {
    explicit State(const SpikeOptions& options) : level(options) {}
    SpikeLevel level;
    Discontinuity conditions;
    uint64_t next_key = 1;
    uint32_t high = 0;          // Norms in a row above `exit`, while none is open.
    model::Step high_since = 0;
    std::optional<Episode> open;
    template <class Archive>
    void Fields(Archive& a) { a(level, conditions, next_key, high, high_since, open); }
  };

  // Whether this norm is the last of a burst; counts it.
  bool Bursts(model::Step step, double value, const SpikeLimits& limits);
  void Begin(model::Step step, double value, const SpikeLimits& limits, std::vector<model::Finding>* out);
  void Continue(model::Step step, double value, std::vector<model::Finding>* out);
  void Escalate(std::vector<model::Finding>* out);
  // Whether the peak alone makes it a warning.
  bool Gross() const;
  void End(std::optional<bool> healed, const std::string& message, std::vector<model::Finding>* out);

  SpikeOptions options_;
  State state_;
};

}  // namespace gyrostat::detect
