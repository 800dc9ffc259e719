// A daemon behind the fake transport that orders what a right one would, for processes whose ranks agree: a model of
// two layers of four heads, tau 30. The leader's process holds it.
#pragma once

#include <map>
#include <optional>

#include "gyrostat/gyrostat.h"
#include "model/intervention.h"
#include "remedy/clip_ledger.h"
#include "remedy/qk_clip.h"
#include "support/fake_transport.h"
#include "support/paths.h"

namespace gyrostat::testing {

class RightDaemon {
 public:
  static constexpr double kTau = 30;

  // What its clients open with; `collective` may be null.
  static gyro_options Options(int rank, int ranks, const gyro_collective* collective) {
    gyro_options options;
    gyro_options_init(&options);
    options.address = "fake:1";
    options.run = "right";
    options.allow = "qk_clip";
    options.transport = kFakeTransport;
    options.logit_kind = GYRO_LOGIT_EXACT;
    options.rank = static_cast<uint32_t>(rank);
    options.world_size = static_cast<uint32_t>(ranks);
    options.collective = collective;
    options.model.layers = 2;
    options.model.heads = 4;
    options.model.attention = "mha";
    options.model.qk_norm = "none";
    options.model.master_fp32 = 1;
    return options;
  }

  FakeDaemon& fake() { return daemon_; }
  const FakeDaemon& fake() const { return daemon_; }
  // The boundary whose report an order answered.
  model::Boundary BasisOf(const model::OrderId& id) const { return bases_.at(id); }

  // Waits for the report of boundary `reported` and orders what the newest one asks for, by a copy of the ledger that
  // follows the acks.
  void Answer(model::Boundary reported) {
    daemon_.Wait([&](const auto& d) { return !d.reports().empty() && d.reports().back().boundary >= reported; });
    const auto acks = daemon_.acks();
    for (; heard_ < acks.size(); ++heard_) mirror_.Apply(acks[heard_].applied);
    const model::Report report = daemon_.reports().back();
    const auto maxima = report.Array(model::Signal::kAttnLogitMax);
    model::Order order;
    for (uint32_t h = 0; h < maxima.size(); ++h) {
      const auto lambda = mirror_.At(report.ledger_version, h / 4, h % 4);
      const auto target = lambda ? remedy::ClipTarget(static_cast<double>(maxima[h]), kTau, *lambda) : std::nullopt;
      if (target) order.entries.push_back({h / 4, h % 4, maxima[h], *target});
    }
    if (order.entries.empty()) return;
    order.id.bytes.fill(static_cast<uint8_t>(++sent_));
    order.run = "right";
    order.attempt = daemon_.hellos()[0].attempt;
    order.epoch = report.epoch;
    order.basis = report.boundary;
    order.expires_boundary = report.boundary + 16;
    order.tau = kTau;
    bases_[order.id] = order.basis;
    daemon_.Send(order);
  }

 private:
  FakeDaemon daemon_;
  remedy::ClipLedger mirror_{2, 4};
  size_t heard_ = 0;
  int sent_ = 0;
  std::map<model::OrderId, model::Boundary> bases_;
};

}  // namespace gyrostat::testing
