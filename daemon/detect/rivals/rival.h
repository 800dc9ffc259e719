// A rule that other tools use, restated from its source, so that it can be scored beside ours on the same runs.
//
// Restated means: what it looks at, its constants, and its blindness too. After a NaN or one huge value these rules
// see little or nothing for a while, and that is kept: the benchmark measures it (tests/bench/rules). What they do
// after firing (skip, clip, stop, re-run) is left out; the run goes on as it was recorded.
//
// Steps in a row on which a rule fires are one finding, from the first to the last of them. Severity is warning, and
// critical where the tool would stop the run.
#pragma once

#include "detect/condition.h"
#include "detect/detector.h"

namespace gyrostat::detect::rivals {

class Rival : public Detector {
 public:
  void Observe(const model::Report& report, std::vector<model::Finding>* out) final;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) final;
  void Save(base::ByteWriter* out) const final;
  bool Load(base::ByteReader* in) final;

 protected:
  // What a rule says about one report.
  struct Verdict {
    bool fired = false;
    model::Signal signal = model::Signal::kLoss;
    double value = 0, limit = 0;
    model::Severity severity = model::Severity::kWarning;
  };
  virtual Verdict Judge(const model::Report& report) = 0;
  // A process start: what the tool does not keep in its checkpoint is lost.
  virtual void Restart() = 0;
  virtual void SaveRule(base::SaveArchive* archive) const = 0;
  virtual void LoadRule(base::LoadArchive* archive) = 0;
  virtual void ClearRule() = 0;  // As made.

 private:
  Condition condition_;
  model::Step last_fired_ = 0;
  uint64_t next_key_ = 1;
};

// The four that a rule with one State type needs. `Keeps` says whether its checkpoint holds the state.
template <class State, bool Keeps>
class RivalOf : public Rival {
 protected:
  void Restart() override {
    if (!Keeps) ClearRule();
  }
  void SaveRule(base::SaveArchive* archive) const override { (*archive)(const_cast<State&>(state_)); }
  void LoadRule(base::LoadArchive* archive) override { (*archive)(state_); }
  void ClearRule() override { state_ = State(); }
  State state_;
};

}  // namespace gyrostat::detect::rivals
