// Intents of qk_clip: at most one is open; those before it are remembered for acks that come late.
//
// An intent opens with its first order (or waits as a proposal), is what a person approves, what the budget counts and
// what is judged, and closes when no order was needed for a while. Time here is the run's own: boundaries counted on
// over attempts.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "model/intervention.h"
#include "policy/outcome.h"
#include "policy/ration.h"
#include "policy/run_policy.h"

namespace gyrostat::policy {

// How long orders took from the measuring forward to the clip.
class DelayTally {
 public:
  void Add(model::Boundary delay);
  std::optional<double> Median() const;
  template <class Archive>
  void Fields(Archive& a) { a(counts_); }

 private:
  std::array<uint32_t, 65> counts_{};  // The last is "64 or more"; no order lives longer.
};

struct Intent {
  model::Intervention view;
  uint64_t number = 0;
  std::string opening;      // The sentence it opened with; view.reason is this and what came of it.
  double tau = 0;           // What an approval binds.
  bool by_person = false;   // Approved by somebody.
  bool authorized = true;   // False: the client clipped locally without being told to.
  RunTime active_at = 0;    // Last order, local clip, or (waiting) head above tau.
  uint32_t refused_in_row = 0, expired = 0, voided = 0;
  DelayTally delays;
  std::vector<bool> touched;  // Heads charged, layer-major.
  OutcomeWatch watch;
  std::string verdict;

  // Charges of one applied order.
  void Touch(const model::LedgerDelta& applied, uint32_t layers, uint32_t heads);
  template <class Archive>
  void Fields(Archive& a) {
    a(view, number, opening, tau, by_person, authorized, active_at, refused_in_row, expired, voided, delays, touched,
      watch, verdict);
  }
};

class IntentBook {
 public:
  Intent* open() { return open_ ? &*open_ : nullptr; }
  const Intent* open() const { return open_ ? &*open_ : nullptr; }
  // The open intent or one of the latest ended ones.
  Intent* Find(uint64_t number);
  // The one that ended last, or null.
  Intent* Latest() { return ended_.empty() ? nullptr : &ended_.back(); }
  // State of an intent of this run by number; nothing when it never was. Ended long ago counts as judged.
  std::optional<model::InterventionState> StateOf(uint64_t number) const;

  // Why no new intent may open now (cool-down, budget), a sentence; empty: one may.
  std::string HeldBack(RunTime now, const PolicyOptions& options) const;
  // Only the budget.
  std::string OverBudget(RunTime now, const PolicyOptions& options) const;

  // Opens one; none may be open. `view` needs id and number set by this.
  Intent& Open(const std::string& run, RunTime now, Intent intent);
  // The open intent ends, with a sentence on how. No new one opens for `pause` boundaries, for the reason `why_pause`.
  void End(model::InterventionState state, const std::string& sentence, RunTime now, uint64_t pause,
           const std::string& why_pause);

  // A pause after a refusal by the client: longer each time until something is applied.
  uint64_t NextRefusalPause();
  void ForgetRefusals() { refusals_ = 0; }
  // A person's word or new rules end any pause.
  void EndPause() { paused_until_ = 0, ration_.EndCoolDown(); }
  // Which the other kinds share.
  Ration& ration() { return ration_; }
  const Ration& ration() const { return ration_; }

  template <class Archive>
  void Fields(Archive& a) { a(open_, ended_, ration_, paused_until_, why_paused_, refusals_); }

 private:
  std::optional<Intent> open_;
  std::deque<Intent> ended_;  // Latest last.
  Ration ration_;
  RunTime paused_until_ = 0;
  std::string why_paused_;
  uint32_t refusals_ = 0;
};

}  // namespace gyrostat::policy
