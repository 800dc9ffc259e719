// Messages as a well-behaved client sends them; each test breaks one thing.
#pragma once

#include <string>
#include <vector>

#include "gyrostat/v1/report.pb.h"
#include "model/ids.h"
#include "model/signal.h"

namespace gyrostat::rpc {

inline std::string IdBytes(char fill) { return std::string(16, fill); }

inline v1::Hello SampleHello() {
  v1::Hello hello;
  hello.set_protocol_version(1);
  hello.set_run("gpt-20m");
  hello.set_attempt(IdBytes('a'));
  hello.set_epoch(2);
  hello.set_boundary(41);
  hello.set_ledger_version(7);
  hello.mutable_ledger()->add_layer(1);
  hello.mutable_ledger()->add_head(3);
  hello.mutable_ledger()->add_ticks(5 << 20);
  v1::OrderOutcome* outcome = hello.add_last_outcomes();
  outcome->set_order_id(IdBytes('o'));
  outcome->set_outcome(v1::Ack::APPLIED);
  hello.add_allow("qk_clip");
  hello.set_tau_min(10);
  v1::ModelSpec* model = hello.mutable_model();
  model->set_layers(2);
  model->set_heads(4);
  model->set_kv_heads(2);
  model->set_hidden_size(128);
  model->set_head_dim(32);
  model->set_attention("gqa");
  model->set_norm_placement("pre");
  model->set_norm_kind("rmsnorm");
  model->set_norm_eps(1e-6);
  model->set_norm_gain("unit_offset");
  model->set_master_fp32(true);
  model->mutable_schedule()->set_kind("cosine");
  model->mutable_schedule()->set_peak(3e-4);
  model->mutable_schedule()->set_warmup_steps(100);
  hello.mutable_attn_logit()->set_kind(v1::AttnLogitInfo::EXACT);
  hello.mutable_attn_logit()->set_scaled(true);
  hello.set_world_size(8);
  hello.set_agreement_lag(1);
  hello.set_rank(0);
  hello.set_client_version("0.1.0");
  hello.set_framework("torch 1.13.1");
  hello.set_first_sequence(12);
  hello.set_grad_norm_convention("unclipped");
  return hello;
}

inline std::string FloatBytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

inline void AddArray(v1::Report* report, model::Signal signal, const std::vector<float>& values) {
  v1::SignalValues* array = report->add_arrays();
  array->set_signal(static_cast<uint32_t>(signal));
  array->set_values(FloatBytes(values));
}

inline void AddScalar(v1::Report* report, model::Signal signal, double value) {
  report->add_scalar_signals(static_cast<uint32_t>(signal));
  report->add_scalars(value);
}

// For the model of SampleHello.
inline v1::Report SampleReport(uint64_t sequence) {
  v1::Report report;
  report.set_sequence(sequence);
  report.set_epoch(2);
  report.set_boundary(40 + sequence);
  report.set_step(static_cast<int64_t>(100 + sequence));
  report.set_ledger_version(7);
  report.set_step_time_ms(12.5);
  report.set_attn_logit_kind(v1::AttnLogitInfo::EXACT);
  AddScalar(&report, model::Signal::kLoss, 3.25);
  AddScalar(&report, model::Signal::kGradNorm, 1.5);
  AddArray(&report, model::Signal::kAttnLogitMax, {1, 2, 3, 4, 5, 6, 7, 8});
  report.add_user_names("tokens_per_second");
  report.add_user_values(1e5);
  return report;
}

inline v1::Ack SampleAck() {
  v1::Ack ack;
  ack.set_order_id(IdBytes('o'));
  ack.set_outcome(v1::Ack::APPLIED);
  ack.set_boundary(42);
  ack.set_step(101);
  ack.set_ledger_version_before(7);
  ack.set_ledger_version_after(8);
  ack.mutable_applied()->add_layer(1);
  ack.mutable_applied()->add_head(3);
  ack.mutable_applied()->add_ticks(1000);
  return ack;
}

}  // namespace gyrostat::rpc
