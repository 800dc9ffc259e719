// A policy and a client in one loop, and what came out of it.
#pragma once

#include <string>
#include <vector>

#include "policy/run_policy.h"
#include "support/clip_client.h"

namespace gyrostat::policy {

inline PolicyOptions Options(model::Mode mode, double tau = 30) {
  PolicyOptions options;
  options.mode = mode;
  options.qk_clip.tau = tau;
  return options;
}

class Loop {
 public:
  explicit Loop(const PolicyOptions& options, const model::ModelSpec& spec = testing::ClipModel(2, 2))
      : client(spec), policy("r", options) {}

  void SayHello() {
    Call([&](PolicyOutput* out) { policy.OnHello(client.Hello(), out); });
  }

  // One step of training, measured, reported, answered, and acked. Orders of this call are in `last`.
  void Step(const std::vector<double>& unclipped) {
    Report(client.Forward(unclipped));
    for (const model::Ack& ack : client.Boundary()) Ack(ack);
  }
  void Steps(int n, const std::vector<double>& unclipped) {
    for (int i = 0; i < n; ++i) Step(unclipped);
  }
  void Report(const model::Report& report) {
    last.Clear();
    Call([&](PolicyOutput* out) { policy.OnReport(report, client.boundary(), out); });
  }
  void Ack(const model::Ack& ack) {
    acks.push_back(ack);
    Call([&](PolicyOutput* out) { policy.OnAck(ack, out); });
  }
  void SetMode(model::Mode mode) {
    Call([&](PolicyOutput* out) { policy.SetMode(mode, "kim", out); });
  }
  absl::Status Approve(const std::string& id) {
    absl::Status status;
    Call([&](PolicyOutput* out) { status = policy.Approve(id, "kim", "looks right", out); });
    return status;
  }
  absl::Status Reject(const std::string& id) {
    absl::Status status;
    Call([&](PolicyOutput* out) { status = policy.Reject(id, "kim", "not now", out); });
    return status;
  }

  template <class Function>
  void Call(Function&& function) {
    PolicyOutput out;
    function(&out);
    for (const model::Order& order : out.orders)
      if (delivers) client.Receive(order);
    const auto append = [](const auto& from, auto* to) { to->insert(to->end(), from.begin(), from.end()); };
    for (PolicyOutput* to : {&last, &all}) {
      append(out.decisions, &to->decisions);
      append(out.changed, &to->changed);
      append(out.orders, &to->orders);
      append(out.findings, &to->findings);
    }
  }

  // The newest state of an intent, by number.
  model::Intervention Intent(int number) const {
    model::Intervention found;
    for (const model::Intervention& each : all.changed)
      if (each.id == "r/" + std::to_string(number)) found = each;
    return found;
  }
  std::string LastDecision() const { return all.decisions.empty() ? "" : all.decisions.back().reason; }

  testing::ClipClient client;
  RunPolicy policy;
  PolicyOutput last, all;  // Of the last report; of everything.
  std::vector<model::Ack> acks;
  bool delivers = true;  // False: orders get lost on their way.
};

}  // namespace gyrostat::policy
