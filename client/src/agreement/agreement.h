// One rank's half of protocol.md §3: what it puts into R, and what it does about what came out.
//
// At each boundary, on the training thread, the same on all ranks:
//   Decide(b, R_{b-d})  an action, as a pure function of R and of the state that all ranks share;
//   the caller scales the weights that the action names, and says so with Applied or Failed;
//   Fill(b, ...)        the lanes of R_b, whose digest is of the state after the action.
// Equal state and equal input give equal verdicts, so no rank needs to hear what another decided. There is no clock and
// no "if it has arrived": the caller waits for R_{b-d}, however long that takes. A wait that cannot end is not ended
// here: lock-step jobs die at the next gradient exchange (protocol.md §4.4).
//
// Not thread-safe. Allocates at construction, where a boundary applies something, and in reasons.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/src/agreement/lanes.h"
#include "client/src/agreement/measured_ring.h"
#include "client/src/agreement/state_digest.h"
#include "client/src/clip_state.h"
#include "client/src/job_registers.h"
#include "client/src/settings.h"
#include "client/src/wire_records.h"
#include "model/intervention.h"
#include "remedy/clip_ledger.h"
#include "remedy/qk_clip.h"

namespace gyrostat::client {

// d at most this. More than 1 only where nothing may change weights (protocol.md §3).
inline constexpr uint32_t kLagMax = 4;

// Fixed from one join to the next, the same on all ranks.
struct AgreementTerms {
  LaneLayout layout = {};
  uint32_t lag = 1;  // d.
};

enum class Verdict : uint8_t {
  kNone,     // No order was in R.
  kHeld,     // An order was in R, and not now: somebody is not ready, or the states differ. It may come again.
  kForeign,  // It was put in before the weights got another history.
  kRefused,  // It is wrong; `reason` says why.
  kVoid,     // Nothing is left to do.
  kApply,
};

// What to do at this boundary.
struct Action {
  Verdict verdict = Verdict::kNone;
  OrderTag tag;                  // Of the order in R; zero: none.
  model::InterventionKind kind = model::InterventionKind::kQkClip;  // Its kind.
  model::Boundary put_in = 0;    // The boundary whose R held it.
  std::string reason;            // For kHeld, kForeign, kRefused, kVoid.
  bool local = false;            // Local mode asks for something, with or without an order.
  model::Boundary basis = 0;     // Of local mode: the boundary whose maxima it answers.
  double tau = 0;                // Of a clip.
  // What the caller does, all or nothing, where acts(). Clips: factors for rows of W_q and W_k, none where the order
  // only turns local mode on or off. Other kinds: what registers are to be set to.
  remedy::ClipPlan plan;
  std::vector<model::RegisterSet> sets;
  uint32_t ramp = 0;
  uint64_t version_before = 0, version_after = 0;  // Of the ledger; after: once Applied.

  bool acts() const { return verdict == Verdict::kApply || local; }
};

// What became known of something that was applied (protocol.md §4.9).
struct Confirmation {
  OrderTag tag;  // Zero: local mode's.
  model::Boundary applied_at = 0;
  bool equal = false;  // R_{b+1} showed equal digests at the new version. False: the ranks differ.
  uint64_t digest = 0;
};

// What a rank takes along where ranks join again. A rank that is new brings only the attempt that it would begin.
struct Passage {
  model::AttemptId attempt;
  uint32_t epoch = 0;                    // In which it would go on.
  model::Boundary boundary = 0;          // The last that it passed.
  std::unique_ptr<RestoredState> state;  // Null: it is new, or does not know what its weights are.
  std::string unsure;                    // Why it does not; empty: it does.
  std::string must_load;                 // Why it had to load a state before, and has not; empty: nothing.
};

// What one rank measured and holds at a boundary.
struct FillInput {
  std::span<const float> maxima;  // This rank's own, layer-major; absent where it has no such head. Empty: none.
  bool maxima_usable = true;      // Of a kind that may be a basis, complete, and not of a step gone wrong.
  bool ready = true;              // Bindings are as they were at the join, and nobody here says stop.
  const Proposal* proposal = nullptr;  // The leader's.
};

class Agreement {
 public:
  // `settings` outlives the agreement. `attempt` is the one that all ranks share since the join.
  Agreement(const Settings* settings, AgreementTerms terms, const model::AttemptId& attempt);
  virtual ~Agreement() = default;
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  // Boundary `b` and the lanes of R_{b-d}; no lanes where none was issued (needs_round says so). Overwrites and returns
  // the action.
  const Action& Decide(model::Boundary b, std::span<const float> lanes);
  // R_{b-d} failed here: what the others did is not known. Holds from now on (UNSURE).
  const Action& DecideFailed(model::Boundary b);
  // Whether an R was issued d boundaries before `b` since the last join, so that it must be waited for.
  bool needs_round(model::Boundary b) const;
  // For a leader that reads R_{b-d} before boundary `b`, to report: what Decide(b) will find confirmed in these lanes,
  // where all ranks are equal in them. Nothing of the state moves, and Decide says it again.
  std::vector<Confirmation> ConfirmedBy(model::Boundary b, std::span<const float> lanes) const;

  // The rate of the optimizer step of boundary `at`, as JobRegisters::Rate; and that boundary has passed: before its
  // Decide.
  double Rate(double base, model::Boundary at) { return registers_.Rate(base, at); }
  void Passed(model::Boundary at) { registers_.Passed(at); }

  // The action was done: ledger and registers move. Until then Fill must not be called.
  void Applied();
  // It went wrong: weights may be partly changed. UNSURE.
  void Failed(const std::string& why);

  // All lanes of R_b; those after the maxima as absent, for the caller to fill. False: the proposal does not fit them
  // and is not in.
  bool Fill(model::Boundary b, const FillInput& in, std::span<float> lanes);

  // What a register's tensor holds now, read back. Before Fill.
  void Observe(uint32_t id, float value) { registers_.Observe(id, value); }

  // As Decide returned it, and as Applied completed it.
  const Action& action() const { return action_; }
  // What Decide learnt about earlier actions; call after it.
  const std::vector<Confirmation>& confirmations() const { return confirmations_; }

  // The weights got another history, on all ranks at the same place of their loops. With `restored` the ledger, the
  // registers and the envelope of a checkpoint; false, with a sentence and nothing changed, where it does not fit. Ends
  // UNSURE: whoever calls this has made the weights equal again, and the next digest shows whether he did. What is in R
  // dies.
  bool NewEpoch(const RestoredState* restored, std::string* why = nullptr);

  // Ranks join again after boundary `b`: what this one takes along.
  Passage Leave(model::Boundary b) const;
  // The ranks joined again, or this one joined ranks that were there before: goes on after boundary `b` in `epoch`
  // with what it brought. A rank that is new, was UNSURE or has missed a boundary says not_ready until the next
  // NewEpoch: equal digests alone would not show that its weights are others'. Before the first Decide. As NewEpoch
  // fails. `brought->state` counts boundaries as all do afterwards.
  bool GoOn(Passage* brought, uint32_t epoch, model::Boundary b, std::string* why);

  // From now on this rank says not_ready in every R, and why.
  void HoldForEver(const std::string& why);

  // Why nothing is applied now; empty: all is well. UNSURE is told here too.
  const std::string& trouble() const { return trouble_; }
  bool unsure() const { return unsure_; }
  // This rank is not ready until all load one state.
  bool must_load() const { return !must_load_.empty(); }

  const AgreementTerms& terms() const { return terms_; }
  double tau_min() const { return settings_->tau_min; }
  const model::AttemptId& attempt() const { return attempt_; }
  uint32_t epoch() const { return epoch_; }
  const remedy::ClipLedger& ledger() const { return ledger_; }
  const JobRegisters& registers() const { return registers_; }
  const LocalRegister& local() const { return local_; }
  uint32_t local_version() const { return local_version_; }
  const MeasuredRing& measured() const { return measured_; }
  uint64_t digest() const { return Digest(); }
  // Of the last 256 orders that were agreed on, oldest first; equal on all ranks. Orders are named by their tags.
  std::vector<std::pair<model::OrderId, model::AckOutcome>> Outcomes() const;

  // A clip's entry as the lanes say it, for S and λ of its basis; nothing where S asks for none. The leader writes
  // entries with this, every rank compares with it, bit for bit.
  static std::optional<remedy::Ticks> Excess(float measured, float tau);

 protected:
  // What was filled into R and is still on its way.
  struct Issued {
    model::Boundary boundary = 0;
    uint32_t epoch = 0;
    uint64_t digest = 0;
    bool waiting = false;
  };
  struct Pending {
    OrderTag tag;
    model::Boundary applied_at = 0;
    uint32_t epoch = 0;
    bool local = false;
  };

  // The questions on which the invariants of protocol.md §10 rest. Tests answer them wrongly, to see that it is caught.
  virtual uint64_t RegistersHash() const { return registers_.HashAt(boundary_); }
  virtual bool IsThisHistory(const Issued& issued) const { return issued.epoch == epoch_; }
  virtual const MeasuredRing::Slot* Basis(model::Boundary basis, model::Boundary now) const;
  virtual void ForgetEvidence() { measured_.Clear(); }
  virtual uint64_t ForwardVersion() const { return forward_version_; }
  virtual bool MayConfirm(const Pending& pending, model::Boundary of) const { return of > pending.applied_at; }
  virtual const RestoredState* StateOf(const Passage& brought) const { return brought.state.get(); }
  virtual uint32_t EpochAfter(const Passage&, uint32_t joined) const { return joined; }
  // Why a rank that goes on after boundary `b` must load a state first; empty: it need not.
  virtual std::string MustLoad(const Passage& brought, model::Boundary b) const;
  // Null: the entry is right. `*target` is Λ*.
  virtual const char* CheckEntry(const ProposalEntry& entry, float tau, const MeasuredRing::Slot& basis,
                                 remedy::Ticks* target) const;

  const Settings* const settings_;
  const AgreementTerms terms_;
  remedy::ClipLedger ledger_;
  JobRegisters registers_;
  model::Boundary boundary_ = 0;
  MeasuredRing measured_;
  uint64_t forward_version_ = 0;  // Of the ledger before this boundary's action.

 private:
  // What this rank put in d boundaries before `b`. needs_round says whether there is any.
  const Issued& IssuedFor(model::Boundary b) const { return issued_[(b - terms_.lag) % issued_.size()]; }
  // Of a round in which all are equal: whether that is what this rank said.
  static bool IsWordOf(const Issued& issued, const Round& round) {
    return round.digest == issued.digest && round.boundary == static_cast<uint32_t>(issued.boundary);
  }
  // Forgets the last action. Null: no R was issued d boundaries ago.
  Issued* BeginBoundary(model::Boundary b);
  void Confirm(const Issued& issued, bool equal);
  // What this R says of the whole job: empty, or why nothing is applied.
  std::string Obstacle(bool equal) const;
  void Judge();
  void JudgeClip();
  void JudgeLocalRegister();
  void JudgeRegisters();
  // The refusal, or empty and entries_ filled.
  std::string CheckClip(const remedy::ClipShape& shape);
  // Terms and allow-list; `*shape` filled where there is no refusal.
  std::string CheckTerms(const Proposal& proposal, remedy::ClipShape* shape) const;
  // Local mode's part of the plan, on the maxima of the boundary that R_{b-d} brought.
  void PlanLocal(const Issued& issued);
  void Conclude(Verdict verdict, std::string reason);
  void BeUnsure(std::string why);
  // All that is state, as a checkpoint would hold it after boundary `b`.
  std::unique_ptr<RestoredState> State(model::Boundary b) const;
  void Remember(const OrderTag& tag, model::AckOutcome outcome);
  uint64_t Digest() const;

  model::AttemptId attempt_;
  const uint64_t terms_hash_;
  uint32_t epoch_ = 0;
  LedgerHash ledger_hash_;
  LocalRegister local_;
  uint32_t local_version_ = 0;

  std::vector<Issued> issued_;
  std::vector<Pending> pending_;
  std::vector<Confirmation> confirmations_;
  std::vector<std::pair<OrderTag, model::AckOutcome>> outcomes_;
  size_t outcomes_next_ = 0;

  Round round_;
  Action action_;
  std::vector<model::ClipEntry> entries_, local_entries_;
  remedy::ClipShape shape_;   // Of the entries.
  bool sets_local_ = false;   // The action sets local clipping.

  bool unsure_ = false, hold_for_ever_ = false;
  std::string trouble_, hold_reason_;
  std::string must_load_;  // Why this rank is not ready before a new epoch; empty: it is.
};

}  // namespace gyrostat::client
