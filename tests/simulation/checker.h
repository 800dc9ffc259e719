// Knows the truth and holds the ranks to it: the invariants I1 to I8 of protocol.md §10.
//
// It keeps a state of its own for every rank, moved by its own small arithmetic from what really was measured, put into
// R and broken, and compares it with what each rank holds after each boundary. So "all or none" (I1), "lambda never
// falls" (I2), "lambda is the maximum of all applied targets" (I3) and "no decision depends on a clock" (I5) become one
// question: does this rank stand where it should? Wrong refusals are found the same way.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/src/agreement/agreement.h"
#include "client/src/agreement/leader_desk.h"
#include "client/src/settings.h"
#include "simulation/plan.h"
#include "simulation/register_truth.h"
#include "simulation/statistics_truth.h"

namespace gyrostat::simulation {

// What a rank stands at, as far as ranks must agree on it.
struct StateView {
  model::AttemptId attempt = {};
  uint32_t epoch = 0;
  std::vector<remedy::Ticks> ledger = {};
  double local_tau = 0;
  uint32_t local_version = 0;
  std::map<uint32_t, remedy::Register> registers = {};  // Those that were ever set.
  float alpha = 1;  // As the model really has it.
  double rate = 0;  // Of this boundary's optimizer step.
  bool unsure = false;
  bool operator==(const StateView&) const = default;
};
StateView ViewOf(const client::Agreement& rank, float alpha, double rate);

// What one rank put into R.
struct FillView {
  StateView state;
  double base = 0;  // The rate of the trainer's own schedule.
  bool not_ready = false;
  RankSaid said;
  bool usable = true;
  std::vector<uint64_t> head_bits;  // 0: not this rank's.
  const client::Proposal* proposal = nullptr;
};

// Where a rank comes from that joins.
struct Arrival {
  std::optional<uint32_t> from;  // Its number before; none: it is new.
  model::Boundary boundary = 0;  // The last that it passed.
  bool weights = true;           // It holds what others of its part hold.
};

struct Tally {
  uint64_t boundaries = 0, attempts = 0, epochs = 0, unsure = 0;
  uint64_t joins = 0, newcomers = 0, behind = 0, joined_unsure = 0, reports = 0, sums = 0, odd_reports = 0;
  uint64_t applied = 0, local = 0, refused = 0, voided = 0, held = 0, foreign = 0, registers = 0;
  uint64_t alphas = 0, rays = 0, scales = 0, skips = 0;  // Of the register sets.
  uint64_t acks_applied = 0, acks_expired = 0, acks_refused = 0, acks_failed = 0, acks_other = 0, at_the_edge = 0;
  void Add(const Tally& other);
  std::string ToString() const;
};

class Checker {
 public:
  Checker(const Plan* plan, const client::Settings* settings) : plan_(plan), settings_(settings) {}

  // The first thing that was wrong; empty: nothing.
  const std::string& violation() const { return violation_; }
  Tally tally;

  void BeginAttempt(const model::AttemptId& attempt, const StateView& begin, const RegisterTruth& registers);
  void OnFill(uint32_t rank, model::Boundary b, const FillView& fill);
  void OnCollectiveFailed(uint32_t rank, model::Boundary of) { failed_[{rank, of}] = true; }
  void OnApplyFailed(uint32_t rank, model::Boundary b) { apply_failed_[{rank, b}] = true; }
  // A rank's step ended in mid-air: what R of boundary `of` held it will never know.
  void OnCut(uint32_t rank, model::Boundary of);
  // A rank is lost, and no more ranks will pass boundary `b`.
  void OnBroken(model::Boundary b);
  // All ranks have joined again.
  void OnJoined(const std::vector<Arrival>& all, const model::AttemptId& attempt);
  // The leader says what all ranks measured.
  void OnReport(const model::Report& report);
  void OnSumCame(model::Boundary of) { rounds_[of].sum_came = true; }
  // Between boundary `after` and the next; a ledger and registers out of a checkpoint or zeros.
  void OnNewEpoch(uint32_t rank, model::Boundary after, const StateView& begin, const RegisterTruth& registers);
  // The trainer copied the weights of whole ranks to the others.
  void OnRepaired() { diverged_.assign(world(), false); }
  // All ranks have passed boundary `b`, and one of them saved this.
  void OnSaved(model::Boundary b, const client::RestoredState& state);
  // What a rank's registers and envelope must be now.
  const RegisterTruth& registers(uint32_t rank) const { return register_truth_[rank]; }
  // Every order that the leader was given, with the boundary after which it must not be applied.
  void OnOrder(const model::Order& order, bool approved);
  void OnAck(const model::Ack& ack);
  void EndAttempt(bool clean);

  bool diverged(uint32_t rank) const { return diverged_[rank]; }

 private:
  struct Round {
    std::map<uint32_t, FillView> fills;
    std::optional<client::Proposal> proposal;
    std::vector<float> measured;        // The maximum over ranks, NaN where it is broken.
    bool usable = true, complete = false, sum_came = false;
    bool must_load = false;             // Of some rank: it has joined and does not know what others hold.
    std::vector<StateView> after;       // The true states after the boundary, with alpha as in R.
    std::vector<remedy::Ticks> lambda;  // Under which this forward ran.
    bool acted = false;
  };
  struct Epoch {
    StateView state;
    RegisterTruth registers;
  };
  struct Known {
    model::Boundary expires = 0;
    uint32_t epoch = 0;
    model::AttemptId attempt;
    bool approved = true, endless = false;
  };
  // What all ranks must do at a boundary.
  struct Effect {
    bool acts = false;
    std::vector<remedy::Ticks> ledger;
    bool sets_local = false, sets_registers = false;
  };

  size_t world() const { return truth_.size(); }
  // All ranks that will pass boundary `b` have.
  void Complete(model::Boundary b);
  // The epoch that began before boundary `b`, if one did.
  void EnterEpoch(uint32_t rank, model::Boundary b);
  // What all ranks decide from R of the boundary before, and what it makes of each.
  void Decide(model::Boundary b, Round* round);
  void CheckRounds(model::Boundary until);
  // What `effect`, decided from R of the boundary before, makes of a rank that did not fail.
  void Move(uint32_t rank, model::Boundary b, const Round& of, const Effect& effect);
  Effect EffectOf(model::Boundary b, const Round& round, const StateView& state);
  void DecideClip(model::Boundary b, const client::Proposal& p, Effect* effect, const StateView& state);
  bool AddTargets(model::Boundary put_in, model::Boundary b, const client::Proposal& p,
                  std::vector<remedy::Ticks>* targets) const;
  void AddLocal(const Round& round, const StateView& state, Effect* effect);
  // Group mates are charged with the largest of the group.
  std::vector<remedy::Ticks> Charged(const std::vector<remedy::Ticks>& now,
                                     const std::vector<remedy::Ticks>& targets) const;
  void DecideLocalRegister(const client::Proposal& p, const StateView& state, Effect* effect);
  void DecideRegisters(model::Boundary b, const client::Proposal& p, Effect* effect);
  void CompareState(uint32_t rank, model::Boundary b, const StateView& seen, const StateView& wanted);
  void CompareWeights(model::Boundary b, const Round& round);
  void CheckExpiry(model::Boundary b, const client::Proposal& p);
  bool AllEqual(const Round& round) const;
  void Violate(const std::string& what);

  const Plan* plan_;
  const client::Settings* settings_;
  std::string violation_;
  model::AttemptId attempt_;
  std::map<model::Boundary, Round> rounds_;
  std::vector<StateView> truth_;
  std::vector<RegisterTruth> register_truth_;
  std::map<std::pair<uint32_t, model::Boundary>, Epoch> epochs_;
  std::map<std::pair<uint32_t, model::Boundary>, bool> failed_, apply_failed_;
  std::map<model::OrderId, Known> orders_;
  std::map<client::OrderTag, model::OrderId> tags_;
  std::vector<bool> diverged_, must_load_;
  uint32_t first_ = 0;                // A rank that passes the boundary.
  model::Boundary epoch_begins_ = 0;  // The first boundary that may be a basis.
  model::Boundary joined_at_ = 0;     // The first boundary since ranks joined: what was in R before it nobody reads.
};

}  // namespace gyrostat::simulation
