// A training job as the engine sees it, and an eventful life for it: a head that runs away and is clipped, spikes, a
// NaN, a pause, a rollback, a restart, changes of mode and thresholds, an approval, reports that come twice.
//
// The job answers orders as a client would: applies what is missing to its ledger and acks one report later. Used to
// record a list of events from a run of its own, which then can be replayed in pieces. Not thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/run.h"
#include "remedy/ticks.h"
#include "support/plain_run.h"

namespace gyrostat::testing {

inline constexpr double kScriptedTau = 30;
inline constexpr const char* kScriptedRun = "scripted";

inline engine::RunOptions ScriptedOptions() {
  engine::RunOptions options;
  options.policy.mode = model::Mode::kAct;
  options.policy.qk_clip.tau = options.detect.attn_logit.tau = kScriptedTau;
  return options;
}

class ScriptedJob {
 public:
  explicit ScriptedJob(uint8_t attempt) : attempt_(IdOf(attempt)) {}

  engine::HelloEvent Hello() const {
    model::Hello hello = PlainHello(kScriptedRun, attempt_);
    hello.epoch = epoch_;
    hello.boundary = boundary_;
    hello.ledger_version = version_;
    if (ticks_ > 0) hello.ledger = {{1}, {3}, {ticks_}};
    return {hello};
  }

  // The next report. Head 3 of layer 1 grows without bound; whatever else happens is the caller's to set.
  engine::ReportEvent Report() {
    logit_ *= 1.04;
    model::Report report = PlainReport(++sequence_);
    report.epoch = epoch_;
    report.boundary = boundary_++;
    report.step = ++step_;
    report.ledger_version = version_;
    const double clipped = logit_ * remedy::ExpMinus(ticks_);
    report.MutableArray(model::Signal::kAttnLogitMax)[kPlainHeads + 3] = static_cast<float>(clipped);
    return {attempt_, std::move(report)};
  }

  // Does what an order asks and says so.
  engine::AckEvent Obey(const model::Order& order) {
    model::Ack ack;
    ack.order_id = order.id;
    ack.outcome = model::AckOutcome::kVoid;
    ack.boundary = boundary_;
    ack.step = step_;
    ack.ledger_version_before = version_;
    for (const model::ClipEntry& entry : order.entries) {
      if (entry.target_ticks <= ticks_) continue;
      ack.applied = {{entry.layer}, {entry.head}, {entry.target_ticks - ticks_}};
      ack.outcome = model::AckOutcome::kApplied;
      ticks_ = entry.target_ticks;
      ++version_;
    }
    ack.ledger_version_after = version_;
    return {attempt_, ack};
  }

  // Back to an earlier checkpoint: another epoch, an empty ledger.
  void RollBack(model::Step step) {
    ++epoch_;
    step_ = step;
    logit_ = 6;
    ticks_ = 0;
    version_ = 0;
  }

  model::Step step() const { return step_; }
  const model::AttemptId& attempt() const { return attempt_; }

 private:
  const model::AttemptId attempt_;
  uint32_t epoch_ = 0;
  uint64_t sequence_ = 0;
  model::Boundary boundary_ = 0;
  model::Step step_ = 0;
  uint64_t version_ = 0;
  int64_t ticks_ = 0;
  double logit_ = 12;
};

// Plays the life on `run` and writes down its events. A report every 100 ms by its stamps.
class Script {
 public:
  explicit Script(engine::Run* run) : run_(run) {}

  std::vector<engine::Event> Record() {
    ScriptedJob first(1), second(2);
    Say(first.Hello());
    Reports(&first, 60);
    Say(engine::ModeEvent{model::Mode::kAdvise, "anna", "let me look"});
    Reports(&first, 40);
    ApproveAll();
    Say(engine::ModeEvent{model::Mode::kAct, "anna", "go on"});
    Reports(&first, 20);
    Spike(&first);
    first.RollBack(first.step() - 30);
    Reports(&first, 40);
    Say(first.Hello());  // A reconnect ...
    Say(last_report_);   // ... that sends again what it has not heard of.
    Wait(120'000);       // Silent, and back.
    Reports(&first, 20);
    engine::RunOptions options = ScriptedOptions();
    options.policy.qk_clip.tau = options.detect.attn_logit.tau = 20;
    Say(engine::OptionsEvent{options});
    Reports(&first, 20);
    Say(second.Hello());  // A restart without a good-bye; the first attempt is heard once more.
    Say(first.Report());
    Reports(&second, 20);
    Wait(61'000);
    Reports(&second, 40);
    Say(engine::ByeEvent{second.attempt(), "finished"});
    Wait(120'000);
    return std::move(events_);
  }

 private:
  void Say(engine::EventBody body) {
    events_.push_back({{now_ms_, 1'700'000'000'000 + now_ms_}, std::move(body)});
    run_->Apply(events_.back(), &out_);
    for (const model::Order& order : out_.policy.orders) orders_.push_back(order);
  }
  void Reports(ScriptedJob* job, int count) {
    for (int i = 0; i < count; ++i) {
      now_ms_ += 100;
      last_report_ = job->Report();
      Say(last_report_);
      Answer(job);
    }
  }
  void Answer(ScriptedJob* job) {
    for (const model::Order& order : std::exchange(orders_, {})) Say(job->Obey(order));
  }
  // Loss and gradient jump for five steps; one report holds a NaN.
  void Spike(ScriptedJob* job) {
    for (int i = 0; i < 5; ++i) {
      now_ms_ += 100;
      engine::ReportEvent event = job->Report();
      event.report.SetScalar(model::Signal::kLoss, i == 3 ? std::nan("") : 20);
      event.report.SetScalar(model::Signal::kGradNorm, 50);
      Say(event);
      Answer(job);
    }
    Reports(job, 8);
  }
  void Wait(int64_t ms) {
    for (const int64_t end = now_ms_ + ms; now_ms_ < end; now_ms_ += 10'000) Say(engine::TickEvent{});
  }
  void ApproveAll() {
    for (const model::Intervention& intent : run_->View().open_interventions)
      Say(engine::ApproveEvent{intent.id, "anna", "yes"});
  }

  engine::Run* const run_;
  engine::RunOutput out_;
  std::vector<engine::Event> events_;
  std::vector<model::Order> orders_;  // Not yet answered.
  engine::ReportEvent last_report_;
  int64_t now_ms_ = 0;
};

}  // namespace gyrostat::testing
