// A policy and a client in one loop, and what came out of it.
#pragma once

#include <string>
#include <vector>

#include "spoken_to.h"
#include "support/clip_client.h"

namespace gyrostat::policy {

inline PolicyOptions Options(model::Mode mode, double tau = 30) {
  PolicyOptions options;
  options.mode = mode;
  options.qk_clip.tau = tau;
  return options;
}

class Loop : public SpokenTo {
 public:
  explicit Loop(const PolicyOptions& options, const model::ModelSpec& spec = testing::ClipModel(2, 2))
      : SpokenTo(options), client(spec) {}

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
  absl::Status Approve(const std::string& id) { return SpokenTo::Approve(id, "looks right"); }
  absl::Status Reject(const std::string& id) { return SpokenTo::Reject(id, "not now"); }

  testing::ClipClient client;
  std::vector<model::Ack> acks;

 private:
  void Receive(const model::Order& order) override { client.Receive(order); }
};

}  // namespace gyrostat::policy
