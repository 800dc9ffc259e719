// What orders of other kinds than clips must have made of a rank: its registers and its learning rate, by an arithmetic
// of the checker's own. Boundaries are signed here, so that another attempt only shifts them.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "client/src/agreement/lanes.h"
#include "client/src/wire_records.h"
#include "model/ids.h"
#include "remedy/registers.h"
#include "simulation/plan.h"

namespace gyrostat::simulation {

// What every job of the simulator declares.
inline constexpr double kPeak = 1e-3;
inline constexpr uint64_t kWarmup = 50;
inline constexpr int64_t kDecayUntil = 1000;

// The trainer's own schedule: up, then slowly down.
double BaseRate(model::Step step);

struct RegisterTruth {
  struct Ray {
    int64_t boundary = 0, until = 0;
    double rate = 0, slope = 0;
    double Cap(int64_t at) const { return rate + slope * static_cast<double>(at - boundary); }
    bool operator==(const Ray&) const = default;
  };
  struct Fall {
    int64_t boundary = 0, length = 0;
    double floor = 1;
    bool operator==(const Fall&) const = default;
  };
  std::map<uint32_t, remedy::Register> registers = {};  // Those that were ever set.
  std::vector<Ray> rays = {};
  std::vector<Fall> falls = {};
  double scale = 1;
  int64_t scale_until = 0;  // 0: for good.
  bool scaled = false;

  float Now(uint32_t id, model::Boundary b) const;
  // Of the step of boundary `at`.
  double Rate(double base, int64_t at) const;
  void Passed(double base, int64_t at);

  enum class Verdict : uint8_t { kApply, kVoid, kRefuse };
  Verdict Judge(const Plan& plan, const client::Proposal& p, model::Boundary b) const;
  void Apply(const client::Proposal& p, model::Boundary b);
  // The same in an attempt whose boundaries count `shift` more.
  RegisterTruth Shifted(int64_t shift) const;
  // Whether a checkpoint that was saved after boundary `b` holds this.
  bool IsIn(const client::RestoredState& state, model::Boundary b) const;

 private:
  bool IsRight(const Plan& plan, const client::ProposalEntry& e, uint32_t ramp, model::Boundary b) const;
};

}  // namespace gyrostat::simulation
