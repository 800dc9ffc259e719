// A detector watches the reports of one run and says when something is wrong, and when it is over.
//
// Pure: the same spec, reports and options give the same findings, bit for bit; no clock, no I/O. Not thread-safe:
// engine/ gives each run its own detectors on one thread. State can be saved and restored at any step.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/archive.h"
#include "model/finding.h"
#include "model/model_spec.h"
#include "model/report.h"

namespace gyrostat::detect {

// What happened to a run besides reports; relative baselines start again after each.
enum class Break : uint8_t {
  kNewAttempt,    // A restart or resume.
  kNewEpoch,      // Weights got another history: rollback, load.
  kIntervention,  // An order that changes the rate or the function was applied. Not qk_clip: a right controller clips
                  // at nearly every step, and baselines that restart each time would never be known.
};

class Detector {
 public:
  virtual ~Detector() = default;

  virtual std::string_view name() const = 0;  // As in design.md §5.

  // Feeds one report. Steps strictly increase between breaks; engine/ has dropped repeats. Appends a finding when a
  // condition begins, one with the same `key` and a higher severity when it gets worse, and one with the same `key` and
  // `step_end` set when it ends. Non-finite and absent values are legal input. Appends nothing on most steps, and then
  // does not allocate.
  virtual void Observe(const model::Report& report, std::vector<model::Finding>* out) = 0;

  // Ends what is open if that follows from the break; baselines start again.
  virtual void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) = 0;

  // Steps until what it guards against happens, at the soonest, as the newest reports go; +Inf where it comes no
  // nearer. Nothing where that is not known, or no question for this model. For people who look before a finding.
  virtual std::optional<double> StepsLeft() const { return std::nullopt; }

  virtual void Save(base::ByteWriter* out) const = 0;
  // False on foreign bytes; the detector is then as new.
  virtual bool Load(base::ByteReader* in) = 0;
};

}  // namespace gyrostat::detect
