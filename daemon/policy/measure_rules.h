// May a measure be taken, and unasked? protocol.md §9: when doing nothing is right. Each "no" is a sentence.
#pragma once

#include <optional>
#include <string>

#include "policy/clip_state.h"
#include "policy/measures.h"

namespace gyrostat::policy {

// Why not. `topic` stays while the numbers in the sentence change: it is said once.
struct Hold {
  std::string topic, reason;
};

// What stands against the kind on this job whatever the reports show: allow-list, ranks, a failed order, disabled.
std::optional<Hold> AgainstKind(model::InterventionKind kind, const ClipState& s, const Measures& m);

// Why nothing of the kind may open now on what `because` says (null: a person asks): a pause, cool-down and budget, the
// end of the run, a change 16 boundaries ago or less, too few reports for a finding that is relative.
std::optional<Hold> AgainstOpening(const Terms& terms, model::InterventionKind kind, const Recommendation* because,
                                   const ClipState& s, const Measures& m);

// Why nothing may be sent on this report.
std::optional<Hold> AgainstSending(const Measure& measure, const model::Report& report, const ClipState& s,
                                   const Measures& m);

// Whether mode act sends it unasked: what the configuration lists; warmup_extension also where the post-norm family is
// still in its warm-up, since a late one is useless (design.md §6).
bool GoesUnasked(const Terms& terms, const Recommendation& because, const ClipState& s, const Measures& m);

// Why an intent that went unasked would spoil the outcome of another that is being read; empty: it would not.
std::string WouldDisturb(model::InterventionKind kind, const Measures& m);

}  // namespace gyrostat::policy
