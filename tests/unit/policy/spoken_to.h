// A policy as tests speak to it, and what it said: what the loops of clips and of measures have in common.
#pragma once

#include <string>

#include "policy/run_policy.h"

namespace gyrostat::policy {

class SpokenTo {
 public:
  explicit SpokenTo(const PolicyOptions& options) : policy("r", options) {}
  virtual ~SpokenTo() = default;
  SpokenTo(SpokenTo&&) = default;

  void SetMode(model::Mode mode) {
    Call([&](PolicyOutput* out) { policy.SetMode(mode, "kim", out); });
  }
  absl::Status Approve(const std::string& id, const std::string& reason) {
    absl::Status status;
    Call([&](PolicyOutput* out) { status = policy.Approve(id, "kim", reason, out); });
    return status;
  }
  absl::Status Reject(const std::string& id, const std::string& reason) {
    absl::Status status;
    Call([&](PolicyOutput* out) { status = policy.Reject(id, "kim", reason, out); });
    return status;
  }

  template <class Function>
  void Call(Function&& function) {
    PolicyOutput out;
    function(&out);
    for (const model::Order& order : out.orders)
      if (delivers) Receive(order);
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

  RunPolicy policy;
  PolicyOutput last, all;  // Of the last report; of everything.
  bool delivers = true;    // False: orders get lost on their way.

 private:
  // An order on its way to the job.
  virtual void Receive(const model::Order& order) = 0;
};

}  // namespace gyrostat::policy
