// A training thread and a sender in one thread, step by step, against the fake daemon: what unit tests of orders drive.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "client/src/actuator.h"
#include "client/src/recorder.h"
#include "client/src/sender.h"
#include "client/src/settings.h"
#include "model/intervention.h"
#include "remedy/clip_ledger.h"
#include "support/fake_transport.h"

namespace gyrostat::client {

class FakeClock final : public base::Clock {
 public:
  base::MonotonicTime Now() const override { return now; }
  int64_t UnixMs() const override { return 0; }
  base::MonotonicTime now{};
};

// Two layers of four heads, plain attention, exact maxima, everything allowed.
inline Settings SmallModel() {
  Settings settings;
  settings.active = true;
  settings.address = "fake:1";
  settings.run = "test";
  settings.allow = {"qk_clip"};
  settings.allow_qk_clip = true;
  settings.attn_logit = {.kind = model::LogitKind::kExact, .scaled = true, .masked = true};
  settings.model.layers = 2;
  settings.model.heads = 4;
  settings.model.attention = model::Attention::kMha;
  settings.model.qk_norm = model::QkNorm::kNone;
  settings.model.master_fp32 = true;
  return settings;
}

inline Settings WithTauMin() {
  Settings settings = SmallModel();
  settings.tau_min = 10;
  return settings;
}

inline remedy::Ticks TicksOf(double ratio) { return remedy::LnTicks(ratio); }

class TrainerDouble {
 public:
  explicit TrainerDouble(Settings settings = SmallModel())
      : shared(std::move(settings), Attempt()),
        recorder(&shared.settings, &shared.frames, &shared.counters),
        actuator(&shared.settings, shared.attempt, &shared.orders, &shared.records, &shared.counters),
        sender(&shared, testing::FakeDaemon::Table(), &clock) {
    sender.Open();
    sender.Turn();
  }

  static model::AttemptId Attempt() { return *model::AttemptId::FromHex("00112233445566778899aabbccddeeff"); }

  // One step whose heads all measure `maxima`, or each its own.
  void Step(std::vector<float> maxima, model::Step step) {
    if (maxima.size() == 1) maxima.assign(shared.settings.model.layers * shared.settings.model.heads, maxima[0]);
    actuator.BeginStep(Here());
    recorder.Begin(step);
    recorder.Scalar("loss", 2.5);
    recorder.AttnLogitMax(maxima.data(), maxima.size(), GYRO_LOGIT_UNKNOWN);
    recorder.End(actuator.epoch(), actuator.ledger().version());
    clock.now += base::Milliseconds(100);
    sender.Turn();
  }
  void Step(std::vector<float> maxima) { Step(std::move(maxima), static_cast<model::Step>(recorder.boundary() + 1)); }

  BoundaryView Here() {
    BoundaryView view;
    view.boundary = recorder.boundary();
    view.step = recorder.step();
    view.frames_committed = recorder.frames_committed();
    if (const Frame* frame = recorder.last()) {
      view.maxima = {frame->Array(model::Signal::kAttnLogitMax), frame->Count(model::Signal::kAttnLogitMax)};
      view.kind = frame->logit_kind;
    }
    return view;
  }

  std::optional<gyro_order> Poll() {
    gyro_order order{};
    order.struct_size = sizeof(order);
    return actuator.Poll(Here(), &order) == GYRO_OK ? std::optional(order) : std::nullopt;
  }
  gyro_status Ack(const gyro_order& order, gyro_outcome outcome, const char* reason = nullptr) {
    const gyro_status status = actuator.Ack(Here(), order.id, outcome, reason);
    sender.Turn();
    return status;
  }
  // Delivers, polls, applies and acks everything there is; returns how many orders were handed out.
  int Apply() {
    sender.Turn();
    int applied = 0;
    while (const auto order = Poll()) {
      Ack(*order, GYRO_APPLIED);
      ++applied;
    }
    sender.Turn();
    sender.Turn();
    return applied;
  }

  // The order a right daemon would send for what boundary `basis` measured of one head.
  model::Order Clip(model::Boundary basis, float measured, double tau, uint32_t layer, uint32_t head, uint8_t number) {
    model::Order order;
    order.id.bytes.fill(number);
    order.run = shared.settings.run;
    order.attempt = shared.attempt;
    order.epoch = actuator.epoch();
    order.basis = basis;
    order.expires_boundary = basis + 16;
    order.intent_id = "test/1";
    order.tau = tau;
    order.entries = {{layer, head, measured, *remedy::ClipTarget(measured, tau, actuator.ledger().At(layer, head))}};
    return order;
  }
  model::Order Local(double tau, uint8_t number) {
    model::Order order = Clip(0, 1e6f, 1, 0, 0, number);
    order.where = model::ClipWhere::kLocal;
    order.tau = tau;
    order.entries.clear();
    return order;
  }

  std::string error() const {
    char text[GYRO_REASON_BYTES];
    const auto& t = shared.counters.training.error;
    const auto& s = shared.counters.sender.error;
    return (t.NewerThan(s) ? t : s).Get(text) ? text : "";
  }

  FakeClock clock;
  testing::FakeDaemon daemon;
  Shared shared;
  Recorder recorder;
  Actuator actuator;
  Sender sender;
};

}  // namespace gyrostat::client
