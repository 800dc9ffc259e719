// A client as protocol.md describes it, without threads or network: it measures heads, keeps the true clip ledger,
// judges orders as the real one does, and applies them a chosen number of boundaries after they were decided.
#pragma once

#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "model/intervention.h"
#include "model/report.h"
#include "model/signal.h"
#include "remedy/qk_clip.h"

namespace gyrostat::testing {

inline model::ModelSpec ClipModel(uint32_t layers, uint32_t heads) {
  model::ModelSpec spec;
  spec.layers = layers;
  spec.heads = heads;
  spec.attention = model::Attention::kMha;
  spec.qk_norm = model::QkNorm::kNone;
  spec.master_fp32 = true;
  return spec;
}

class ClipClient {
 public:
  explicit ClipClient(const model::ModelSpec& spec) : ledger_(spec.layers, spec.heads) {
    hello.run = "r";
    hello.attempt.bytes[0] = 1;
    hello.allow = {"qk_clip"};
    hello.model = spec;
    hello.attn_logit = {.kind = model::LogitKind::kExact, .scaled = true, .masked = true};
  }

  // Which may be changed before it is said.
  model::Hello hello;
  model::Boundary delay = 1;  // From the measuring boundary to the one that applies.

  // The hello of a stream that opens now.
  model::Hello Hello() const {
    model::Hello now = hello;
    now.boundary = boundary_ + 1;
    now.ledger_version = ledger_.version();
    now.ledger = ledger_.Sparse();
    for (const model::Ack& ack : outcomes_) {
      model::Ack& known = now.last_outcomes.emplace_back();
      known.order_id = ack.order_id;
      known.outcome = ack.outcome;
      known.reason = ack.reason;
    }
    return now;
  }

  // A training step whose forward shows these maxima (as they would be without any clip: the ledger is taken off).
  model::Report Forward(const std::vector<double>& unclipped) {
    model::Report report;
    report.sequence = ++boundary_;
    report.epoch = hello.epoch;
    report.boundary = boundary_;
    report.step = 100 + static_cast<model::Step>(boundary_);
    report.ledger_version = ledger_.version();
    report.SetScalar(model::Signal::kLoss, 2.5);
    std::vector<float>& maxima = report.MutableArray(model::Signal::kAttnLogitMax);
    for (size_t i = 0; i < unclipped.size(); ++i) {
      const auto layer = static_cast<uint32_t>(i / ledger_.heads()), head = static_cast<uint32_t>(i % ledger_.heads());
      maxima.push_back(static_cast<float>(unclipped[i] * remedy::ExpMinus(ledger_.At(layer, head))));
    }
    measured_.push_back({boundary_, ledger_.version(), maxima});
    if (measured_.size() > remedy::ClipLedger::kHistory) measured_.pop_front();
    return report;
  }

  // An order decided on what this client has measured last: it arrives `delay` boundaries later.
  void Receive(const model::Order& order) { arriving_.push_back({boundary_ + delay, order}); }

  // The boundary itself: what has arrived is judged and applied. The acks are ready to be told.
  std::vector<model::Ack> Boundary() {
    std::vector<model::Ack> acks;
    while (!arriving_.empty() && arriving_.front().first <= boundary_) {
      acks.push_back(Judge(arriving_.front().second));
      outcomes_.push_back(acks.back());
      arriving_.pop_front();
    }
    return acks;
  }

  // Another history of the weights.
  void Reset() {
    ++hello.epoch;
    ledger_.Reset();
    measured_.clear();
  }

  const remedy::ClipLedger& ledger() const { return ledger_; }
  model::Boundary boundary() const { return boundary_; }
  std::optional<std::string> refuse_all;  // Set: every order is refused with this reason.

 private:
  struct Measured {
    model::Boundary boundary = 0;
    uint64_t version = 0;
    std::vector<float> maxima;
  };

  model::Ack Judge(const model::Order& order) {
    model::Ack ack;
    ack.order_id = order.id;
    ack.boundary = boundary_;
    ack.step = 100 + static_cast<model::Step>(boundary_);
    ack.ledger_version_before = ack.ledger_version_after = ledger_.version();
    if (order.attempt != hello.attempt || order.epoch != hello.epoch) {
      ack.outcome = model::AckOutcome::kForeign;
    } else if (refuse_all) {
      ack.outcome = model::AckOutcome::kRefused;
      ack.reason = *refuse_all;
    } else if (order.where == model::ClipWhere::kRemote && boundary_ > order.expires_boundary) {
      ack.outcome = model::AckOutcome::kExpired;
    } else {
      Apply(order, &ack);
    }
    return ack;
  }

  void Apply(const model::Order& order, model::Ack* ack) {
    std::string why;
    const auto shape = remedy::ShapeFor(hello.model, order.variant, &why);
    Measured none;
    const Measured* basis = &none;
    for (const Measured& each : measured_)
      if (each.boundary == order.basis) basis = &each;
    const remedy::ClipCheck check{
        .tau_min = hello.tau_min, .kind = hello.attn_logit.kind, .basis_version = basis->version};
    if (shape) why = remedy::Validate(order, *shape, ledger_, basis->maxima, check);
    if (!why.empty()) {
      ack->outcome = model::AckOutcome::kRefused;
      ack->reason = why;
      return;
    }
    remedy::ClipPlan plan;
    remedy::PlanClip(*shape, order.entries, ledger_, &plan);
    ledger_.Apply(plan.charged);
    ack->outcome = plan.charged.size() > 0 || order.where == model::ClipWhere::kLocal ? model::AckOutcome::kApplied
                                                                                      : model::AckOutcome::kVoid;
    ack->applied = plan.charged;
    ack->ledger_version_after = ledger_.version();
  }

  remedy::ClipLedger ledger_;
  model::Boundary boundary_ = 0;
  std::deque<Measured> measured_;
  std::deque<std::pair<model::Boundary, model::Order>> arriving_;
  std::deque<model::Ack> outcomes_;
};

}  // namespace gyrostat::testing
