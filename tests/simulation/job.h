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
#include "simulation/checker.h"
#include "simulation/daemon.h"
#include "simulation/leader.h"
#include "simulation/mutants.h"
#include "simulation/plan.h"
#include "simulation/scheduler.h"
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
    std::unique_ptr<client::Agreement> agreement;
    std::optional<ToyModel> model;
    model::Boundary boundary = 0;
    uint64_t forward_version = 0;
    std::vector<float> maxima, own_lanes;
    float alpha = 1;
    double base = 0, rate = 0;
    model::Boundary alpha_touched_until = 0, not_ready_until = 0;
    bool waiting = false, apply_fails = false;
    int64_t clock_ahead = 0;
  };
  // One collective.
  struct Round {
    uint32_t put_in = 0;
    std::vector<float> lanes;
    std::vector<bool> arrived, fails;
    uint64_t forward_version = 0;  // The leader's, with the epoch: for its report.
    uint32_t epoch = 0;
    model::Step step = 0;
    std::map<client::OrderTag, Time> deadline;  // For the clock mutant.
  };
  struct Checkpoint {
    std::vector<ToyModel> shards;
    std::string state;
    RegisterTruth registers;  // What the state must hold, as of `boundary`.
    model::Boundary boundary = 0;
    model::Step step = 0;
  };
  enum class Stop : uint8_t { kReset, kRepair, kSave };

  void StartAttempt();
  bool Join(const client::RestoredState* restored);
  void EndAttempt(Time restart_after);
  void StartStep(uint32_t r);
  void AtBoundary(uint32_t r);
  void GoOn(uint32_t r, bool skip);
  void Act(uint32_t r, const client::Action& action);
  void Fill(uint32_t r);
  const client::Proposal* Propose(uint32_t r);
  void Forge(client::Proposal* proposal);
  void Contribute(uint32_t r, const std::vector<float>& lanes);
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
  client::AgreementTerms terms_;
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
  bool running_ = false, may_act_ = true, ending_ = false;
};

}  // namespace gyrostat::simulation
