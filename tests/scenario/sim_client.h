// The training job of a scenario: reports what the signal lines say, and treats orders as protocol.md wants a client
// to.
//
// The attention logits of the signal lines are those of a job that nobody clips; what is reported is that times
// exp(-lambda) of the head. Ledger, targets and refusals are restated here from protocol.md §1 and §8, in plain code
// of its own, so that a scenario does not check remedy/ against itself.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "model/intervention.h"
#include "model/report.h"
#include "scenario/script.h"

namespace gyrostat::scenario {

class SimClient {
 public:
  // `script` outlives the client.
  explicit SimClient(const Script* script);

  // A new process: another attempt, everything at zero, but for the registers where the job kept the client's state.
  enum class State : uint8_t { kLost, kKept };
  void Restart(model::Step from, State state = State::kLost);
  // Another history of the weights in the same process.
  void Rollback(model::Step from);

  model::Hello MakeHello() const;
  // The report of step `at` of the scenario; the boundary rises by one.
  model::Report MakeReport(uint64_t at);
  // An order arrived.
  void Take(const model::Order& order);
  // The newest order arrives a second time.
  void TakeAgain();
  // Applies at the boundary of the last report what is due there. Acks of orders that ended.
  std::vector<model::Ack> Apply();
  // The stream is down: orders that were not yet applied never arrive.
  void Disconnect() { inbox_.clear(); }

  void set_behaviour(const ClientLine& line) { behaviour_ = line; }
  const model::AttemptId& attempt() const { return attempt_; }
  model::Step next_step() const { return next_step_; }
  const std::map<uint32_t, model::RegisterReading>& registers() const { return registers_; }
  double nats(uint32_t layer, uint32_t head) const;
  float peak_logit() const { return peak_logit_; }
  float last_logit() const { return last_logit_; }

 private:
  struct Waiting {
    model::Order order;
    model::Boundary due = 0;
  };
  // What forward `boundary` measured, and the odometer it ran under.
  struct Past {
    std::vector<float> maxima;
    std::vector<int64_t> ticks;
  };

  size_t Index(uint32_t layer, uint32_t head) const { return size_t{layer} * spec_.heads + head; }
  void FillArray(const SignalLine& line, size_t at, model::Report* report) const;
  void MeasureLogits(model::Report* report);
  std::string WhyRefused(const model::Order& order) const;
  void Clip(const std::vector<model::ClipEntry>& entries, model::ClipVariant variant, model::LedgerDelta* applied);
  void SetRegisters(const model::Order& order, model::Ack* ack);
  model::Ack Answer(const model::Order& order);
  void ClipLocally();

  const Script* script_;
  const model::ModelSpec& spec_;
  ClientLine behaviour_;
  uint8_t attempts_ = 0;
  model::AttemptId attempt_;
  uint32_t epoch_ = 0;
  model::Boundary boundary_ = 0;  // Of the last report.
  uint64_t sequence_ = 0;
  model::Step next_step_ = 0;
  std::vector<int64_t> ticks_;    // lambda of each head.
  uint64_t version_ = 0;
  std::map<model::Boundary, Past> past_;
  std::deque<Waiting> inbox_;
  std::map<uint32_t, model::RegisterReading> registers_;  // Those that were ever set.
  model::Order last_order_;
  std::vector<model::Ack> outcomes_;
  double local_tau_ = 0;
  model::ClipVariant local_variant_ = model::ClipVariant::kMha;
  model::LocalClips local_clips_;
  float peak_logit_ = 0, last_logit_ = 0;
};

}  // namespace gyrostat::scenario
