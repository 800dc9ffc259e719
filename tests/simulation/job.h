// The training job: ranks that step, agree and apply; attempts that die and start again from a checkpoint. And the
// whole simulated world around it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/src/agreement/agreement.h"
#include "client/src/agreement/join.h"
#include "client/src/agreement/statistics.h"
#include "client/src/frame.h"
#include "simulation/checker.h"
#include "simulation/daemon.h"
#include "simulation/leader.h"
#include "simulation/mutants.h"
#include "simulation/plan.h"
#include "simulation/scheduler.h"
#include "simulation/statistics_truth.h"
#include "simulation/toy_model.h"

namespace gyrostat::simulation {

class Job {
 public:
  Job(const Plan& plan, Mutant mutant, std::string* trace);

  // Runs until enough boundaries are passed, or something is wrong. The violation, or empty.
  std::string Run();
  const Tally& tally() const { return checker_.tally; }

 private:
  struct Rank {
    std::unique_ptr<client::Settings> settings;
    std::unique_ptr<client::Agreement> agreement;
    std::optional<client::Statistics> statistics;
    std::unique_ptr<client::FrameRing> frames;  // Its newest reports, by boundary.
    std::optional<ToyModel> model;
    model::Boundary boundary = 0;  // That it is on its way to, or has passed.
    model::Boundary filled = 0;    // The last that it has passed.
    uint64_t forward_version = 0;
    RankSaid said;
    std::vector<float> own_lanes;
    float alpha = 1;
    double base = 0, rate = 0;
    model::Boundary alpha_touched_until = 0, not_ready_until = 0;
    bool waiting = false, apply_fails = false, skips = false;
    bool held = false;             // The join said that nobody may act, or failed here.
    bool knows = true;             // Weights and state are the job's: others may be told them.
    model::Boundary stood_at = 0;  // When it joined last, until one state is everywhere.
    int64_t clock_ahead = 0;
  };
  // One collective.
  struct Round {
    uint32_t put_in = 0;
    std::vector<float> lanes, sums;
    std::vector<bool> arrived, fails;
    bool sum_fails = false;  // At the leader.
    uint32_t epoch = 0;      // The leader's.
    std::map<client::OrderTag, Time> deadline;  // For the clock mutant.
  };
  struct Checkpoint {
    std::vector<ToyModel> shards;
    std::string state;
    RegisterTruth registers;  // What the state must hold, as of `boundary`.
    model::Boundary boundary = 0;
    model::Step step = 0;
  };
  enum class Stop : uint8_t { kReset, kRepair, kSave, kRegroup };

  // Who takes part (membership.cc).
  void StartAttempt();
  // `rank` is from now on number r of so many: settings, lanes, parts.
  void Enrol(uint32_t r, size_t world, Rank* rank) const;
  // All ranks join; each is then a rank of the agreement. Where `may_fail`, some do not hear the answer.
  std::vector<client::JoinResult> Join(const std::vector<client::Passage>& brought, bool may_fail);
  model::AttemptId DrawAttempt();
  // Rank r is gone in mid-step, and what is under way with it; the others find out, and join again.
  void LoseRank(uint32_t r);
  // False: the rank is left with an R that it waits for in vain.
  bool FindOut(uint32_t r, model::Boundary broken);
  // Ranks that are left, and new ones, join again.
  void Regroup(const std::vector<bool>& lost);
  // The old rank that takes a new place; none: a new one does.
  std::vector<std::optional<uint32_t>> Places(const std::vector<Rank>& old, const std::vector<bool>& lost);
  void Inherit(Rank* from, Rank* to) const;
  void GoOnTogether(const std::vector<client::JoinResult>& joined, std::vector<client::Passage>* brought, bool led);
  void EndAttempt(Time restart_after);
  void StartStep(uint32_t r);
  void AtBoundary(uint32_t r);
  void GoOn(uint32_t r, bool skip);
  // Decides what came at the rank's boundary, and does it.
  void Pass(uint32_t r, bool skip, bool fails);
  void Act(uint32_t r, const client::Action& action);
  void Fill(uint32_t r);
  FillView ViewOfRank(uint32_t r, bool ready, bool usable, const client::Proposal* proposal) const;
  const client::Proposal* Propose(uint32_t r);
  void Forge(client::Proposal* proposal);
  void Contribute(uint32_t r, const std::vector<float>& lanes, const std::vector<float>& sums);
  // What the rank measures goes into its report, and later into the lanes of its R.
  void MeasureStep(uint32_t r);
  void WriteStatistics(uint32_t r, std::vector<float>* lanes, std::vector<float>* sums);
  void Report(model::Boundary b, const Round& round);
  void Arrive(uint32_t r, model::Boundary b);
  void Misbehave(uint32_t r);
  void ThrowRegisterOrder();
  model::Order RegisterOrder();
  // Sets for all registers [first, first + values), now and then with another version than they stand at.
  std::vector<model::RegisterSet> SetsOf(uint32_t first, const std::vector<double>& values);
  void PlanStop(Stop stop, model::Boundary after);
  void StopAt(uint32_t r);
  void AllStopped(Stop stop);
  void Reset();
  void Repair();
  void Save();
  std::unique_ptr<client::RestoredState> Restored(const std::string& bytes) const;
  // `registers` are what the state must hold, as of the boundary after which it was saved.
  void NewEpoch(const client::RestoredState* restored, const RegisterTruth& registers);
  void TakeOrder(const model::Order& order, bool approved);
  void MindTheWire();
  // Runs `what` unless the attempt is over by then.
  void After(Time delay, std::function<void()> what);
  void Trace(const char* format, ...) __attribute__((format(printf, 2, 3)));
  Rank& leader_rank() { return ranks_[0]; }
  bool Blocked() const { return !checker_.violation().empty(); }

  const Plan plan_;
  const Mutant mutant_;
  std::string* trace_;
  Dice dice_;
  Scheduler scheduler_;
  client::Settings settings_;
  client::AgreementTerms terms_;  // Of the ranks that there are now.
  Checker checker_;
  Daemon daemon_;
  std::unique_ptr<Leader> leader_;
  std::vector<std::unique_ptr<Leader>> dead_leaders_;  // Messages may still be on their way to them.
  std::vector<Rank> ranks_;
  std::map<model::Boundary, Round> rounds_;
  std::map<model::Boundary, Stop> stops_;
  std::map<model::Boundary, uint32_t> stopped_;
  Checkpoint checkpoint_;
  client::Proposal proposal_;
  uint64_t attempt_number_ = 0, generation_ = 0;
  uint64_t passed_ = 0;  // Boundaries of all attempts.
  model::Step step_base_ = 0;
  bool running_ = false, ending_ = false;
  uint32_t replicas_ = 1;  // Now.
};

}  // namespace gyrostat::simulation
