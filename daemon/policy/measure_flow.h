// How measures begin, go out and end. measure_judging.h reads what they did.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "policy/clip_state.h"
#include "policy/measure_rules.h"
#include "policy/measures.h"

namespace gyrostat::policy {

// One call of the policy: what it works on and where its words go.
struct Desk {
  const Terms& terms;
  ClipState* s;
  Measures* m;
  PolicyOutput* out;
};

// Answers a report: decisions where an answer changed, proposals, orders. `newest` is the furthest boundary that the
// attempt is known to have measured.
void AnswerFindings(const Desk& desk, const model::Report& report, model::Boundary newest);

// A person asks. FAILED_PRECONDITION: not now, and why; INVALID_ARGUMENT: out of bounds.
absl::Status ProposeMeasure(const Desk& desk, const Proposal& proposal);
// The measure waits for a person, who says yes or no.
void ApproveMeasure(const Desk& desk, const std::string& author, const std::string& reason, Measure* measure);
void RejectMeasure(const Desk& desk, const std::string& author, const std::string& reason, Measure* measure);

// Puts a measure on the desk that goes unasked, without asking what stands against it; it is sent with the next report.
Measure& OpenMeasure(const Desk& desk, Proposal wish, const Recommendation* because, model::InterventionState state,
                     std::string opening);

// Ends the measure in `state` with a sentence. One that was applied is judged instead, inconclusive unless its outcome
// is known. `pause`: nothing of the kind opens for so many boundaries, for the reason `why_pause`.
void EndMeasure(const Desk& desk, Measure* measure, model::InterventionState state, const std::string& sentence,
                RunTime pause = 0, const std::string& why_pause = {});

// The mode or the options changed: what they do not allow stops.
void FollowTermsOfMeasures(const Desk& desk, const std::string& why);
// A decision, unless the last one about the kind was on the same topic.
void SayOf(const Desk& desk, model::InterventionKind kind, bool acted, const std::string& topic, std::string reason);

}  // namespace gyrostat::policy
