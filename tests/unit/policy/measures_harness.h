// A policy and a client with registers in one loop: findings are said by the test, orders are judged as protocol.md §5
// says.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "spoken_to.h"

namespace gyrostat::policy {

inline model::ModelSpec PostModel(uint32_t layers = 4) {
  model::ModelSpec spec;
  spec.layers = layers;
  spec.heads = 2;
  spec.norm_placement = model::NormPlacement::kPost;
  spec.schedule_kind = model::ScheduleKind::kConst;
  spec.schedule_peak = 0.01;
  spec.warmup_steps = 100;
  spec.total_steps = 1000;
  return spec;
}

inline PolicyOptions In(model::Mode mode, std::vector<model::InterventionKind> automatic = {}) {
  PolicyOptions options;
  options.mode = mode;
  options.automatic = std::move(automatic);
  return options;
}

class MeasureLoop : public SpokenTo {
 public:
  explicit MeasureLoop(const PolicyOptions& options, const model::ModelSpec& spec = PostModel())
      : SpokenTo(options) {
    hello.run = "r";
    hello.attempt.bytes[0] = 1;
    hello.model = spec;
    hello.allow = {"warmup_extension", "deepnorm_alpha", "lr_scale", "grad_clip", "skip_step",
                   "checkpoint",       "rollback",       "halt",     "collect"};
  }

  model::Hello hello;
  model::Boundary delay = 1;
  std::optional<std::string> refuses;
  double loss = 3, rate = 0.001;
  std::vector<float> norms = {1, 1, 1, 1};  // layer_grad_norm.
  std::vector<float> logits = {};           // attn_logit_max; empty: not measured.
  EpisodeNow episode;

  void SayHello() {
    model::Hello now = hello;
    now.boundary = boundary_ + 1;
    for (const auto& [id, r] : registers) now.registers.push_back(r);
    for (const model::Ack& ack : outcomes_) {
      model::Ack known;
      known.order_id = ack.order_id, known.outcome = ack.outcome, known.reason = ack.reason;
      now.last_outcomes.push_back(known);
    }
    Call([&](PolicyOutput* out) { policy.OnHello(now, out); });
  }
  // Another process: boundaries from 1. With `kept`, it loaded its registers.
  void Restart(bool kept) {
    ++hello.attempt.bytes[0];
    boundary_ = 0;
    inbox_.clear();
    outcomes_.clear();
    if (!kept) registers.clear();
    SayHello();
  }

  // A finding, from the next report on until Over.
  void Find(const std::string& detector, model::InterventionKind kind, model::Signal signal = model::Signal::kLoss) {
    model::Finding finding;
    finding.detector = detector;
    finding.key = 1;
    finding.severity = model::Severity::kWarning;
    finding.signal = signal;
    finding.step_begin = step;
    finding.message = detector + " says so.";
    finding.recommend = kind;
    said_.push_back(finding);
  }
  void Over(const std::string& detector) {
    model::Finding finding;
    finding.detector = detector;
    finding.key = 1;
    finding.step_end = step;
    said_.push_back(finding);
  }

  void Step() {
    last.Clear();
    ++boundary_;
    ++step;
    model::Report report;
    report.sequence = report.boundary = boundary_;
    report.epoch = hello.epoch;
    report.step = step;
    report.SetScalar(model::Signal::kLoss, loss);
    report.SetScalar(model::Signal::kGradNorm, 2);
    report.SetScalar(model::Signal::kLearningRate, rate);
    report.MutableArray(model::Signal::kLayerGradNorm) = norms;
    if (!logits.empty()) report.MutableArray(model::Signal::kAttnLogitMax) = logits;
    policy.OnFindings(said_, episode);
    said_.clear();
    Call([&](PolicyOutput* out) { policy.OnReport(report, boundary_, out); });
    for (const model::Ack& ack : Boundary()) Tell(ack);
  }
  void Steps(int n) {
    for (int i = 0; i < n; ++i) Step();
  }
  void Tell(model::Ack ack) {
    acks.push_back(ack);
    if (hears) Call([&](PolicyOutput* out) { policy.OnAck(ack, out); });
  }
  absl::Status Approve(const std::string& id) { return SpokenTo::Approve(id, ""); }
  absl::Status Reject(const std::string& id) { return SpokenTo::Reject(id, "no"); }
  absl::Status Propose(Proposal proposal) {
    proposal.author = "kim";
    absl::Status status;
    Call([&](PolicyOutput* out) { status = policy.Propose(proposal, out); });
    return status;
  }

  void Redeliver(const model::Order& order) { Receive(order); }

  float Value(uint32_t id) const { return registers.count(id) == 0 ? -1 : registers.at(id).to; }
  model::Boundary boundary() const { return boundary_; }

  std::vector<model::Ack> acks;
  std::map<uint32_t, model::RegisterReading> registers;
  model::Step step = 0;
  bool hears = true;  // False: acks get lost.

 private:
  void Receive(const model::Order& order) override { inbox_.push_back({boundary_ + delay, order}); }
  std::vector<model::Ack> Boundary() {
    std::vector<model::Ack> answers;
    while (!inbox_.empty() && inbox_.front().first <= boundary_) {
      answers.push_back(Judge(inbox_.front().second));
      outcomes_.push_back(answers.back());
      inbox_.pop_front();
    }
    return answers;
  }
  model::Ack Judge(const model::Order& order) {
    model::Ack ack;
    ack.order_id = order.id;
    ack.boundary = boundary_;
    ack.step = step;
    ack.outcome = model::AckOutcome::kApplied;
    if (order.attempt != hello.attempt) ack.outcome = model::AckOutcome::kForeign;
    else if (boundary_ > order.expires_boundary) ack.outcome = model::AckOutcome::kExpired;
    else if (refuses) ack.outcome = model::AckOutcome::kRefused, ack.reason = *refuses;
    for (const model::RegisterSet& each : order.sets)
      if (ack.outcome == model::AckOutcome::kApplied &&
          each.expected_version != (registers.count(each.id) == 0 ? 0 : registers.at(each.id).version))
        ack.outcome = model::AckOutcome::kVoid;
    if (ack.outcome != model::AckOutcome::kApplied) return ack;
    for (const model::RegisterSet& each : order.sets) {
      model::RegisterReading& r = registers[each.id];
      r = {.id = each.id, .from = r.to, .to = each.value, .first = static_cast<int64_t>(boundary_),
           .ramp = order.ramp, .version = r.version + 1};
    }
    return ack;
  }

  model::Boundary boundary_ = 0;
  std::vector<model::Finding> said_;
  std::deque<std::pair<model::Boundary, model::Order>> inbox_;
  std::deque<model::Ack> outcomes_;
};

}  // namespace gyrostat::policy
