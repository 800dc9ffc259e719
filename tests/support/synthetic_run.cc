#include "support/synthetic_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/signal.h"

namespace gyrostat::testing {
namespace {

constexpr int64_t kEventStep = 150;   // Late enough that every baseline of 128 steps is full.
constexpr int64_t kSpikeSteps = 6;    // Longer than the three records below which a spike is only noise.
constexpr double kGrowthPerStep = 0.05;
constexpr double kHalfRange = 32752;  // Of fp16.
constexpr double kTicksPerNat = 1048576.0;  // protocol.md §1: a tick is 2^-20 nat.

// SplitMix64: the noise of (seed, step, index), the same on every machine and independent of the order of calls.
double Noise(uint64_t seed, uint64_t step, uint64_t index) {
  uint64_t z = seed * 0x9e3779b97f4a7c15u + step * 0xbf58476d1ce4e5b9u + index * 0x94d049bb133111ebu;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) / 4503599627370496.0 - 1.0;  // [-1, 1).
}

void AddArray(model::Signal signal, const std::vector<float>& values, v1::Report* out) {
  v1::SignalValues* added = out->add_arrays();
  added->set_signal(static_cast<uint32_t>(signal));
  added->set_values(values.data(), values.size() * sizeof(float));
}

// A pre-norm model: the stream grows by one at each layer, and the blocks' gradients are most of the global norm of 1.
double Usual(model::Signal signal, size_t place, uint32_t layers) {
  if (signal == model::Signal::kLayerGradNorm) return 0.9 / std::sqrt(layers);
  const double mean_square = 1 + static_cast<double>(place);
  return signal == model::Signal::kHiddenMs ? mean_square : 4 * std::sqrt(mean_square);
}

}  // namespace

std::optional<Scenario> ScenarioOf(const std::string& name) {
  if (name == "calm") return Scenario::kCalm;
  if (name == "spike") return Scenario::kSpike;
  if (name == "runaway") return Scenario::kRunaway;
  if (name == "nonfinite") return Scenario::kNonfinite;
  if (name == "strained") return Scenario::kStrained;
  return std::nullopt;
}

SyntheticRun::SyntheticRun(SyntheticOptions options) : options_(std::move(options)) {
  const size_t heads = size_t{options_.layers} * options_.heads;
  lambda_ticks_.assign(heads, 0);
  logits_.resize(heads);
}

v1::Hello SyntheticRun::MakeHello() const {
  v1::Hello hello;
  hello.set_protocol_version(1);
  hello.set_run(options_.run);
  hello.set_attempt(options_.attempt);
  for (const std::string& kind : options_.allow) hello.add_allow(kind);
  const uint32_t kv_heads = options_.kv_heads == 0 ? options_.heads : options_.kv_heads;
  v1::ModelSpec* model = hello.mutable_model();
  model->set_layers(options_.layers);
  model->set_heads(options_.heads);
  model->set_kv_heads(kv_heads);
  model->set_head_dim(64);
  model->set_hidden_size(64 * options_.heads);
  model->set_attention(kv_heads == options_.heads ? "mha" : kv_heads == 1 ? "mqa" : "gqa");
  model->set_norm_kind("layernorm");
  model->set_norm_placement("pre");
  model->set_qk_norm("none");
  model->set_compute_dtype(options_.scenario == Scenario::kStrained ? "fp16" : "fp32");
  model->set_master_fp32(true);
  v1::AttnLogitInfo* info = hello.mutable_attn_logit();
  info->set_kind(v1::AttnLogitInfo::EXACT);
  info->set_scaled(true);
  info->set_masked(true);
  info->set_pre_cap(true);
  hello.set_world_size(1);
  hello.set_client_version("loadgen");
  hello.set_framework("synthetic");
  hello.set_first_sequence(1);
  hello.set_grad_norm_convention("unclipped");
  return hello;
}

float SyntheticRun::LogitMax(uint32_t layer, uint32_t head) const {
  const uint64_t index = uint64_t{layer} * options_.heads + head;
  const auto step = static_cast<uint64_t>(step_);
  double value = 8 * (1 + 0.1 * Noise(options_.seed, step, index));
  if (options_.scenario != Scenario::kRunaway || index % 8 != 0) return static_cast<float>(value);
  const double nats = kGrowthPerStep * static_cast<double>(step_) -
                      static_cast<double>(lambda_ticks_[index]) / kTicksPerNat;
  value *= std::exp(std::min(nats, 60.0));  // Below float's largest, however long the run is.
  return static_cast<float>(value);
}

void SyntheticRun::FillScalars(double overload, v1::Report* out) const {
  const auto step = static_cast<uint64_t>(step_);
  double loss = 2 + 6 * std::exp(-static_cast<double>(step_) / 300) + 0.02 * Noise(options_.seed, step, 1u << 30);
  double grad_norm = 1 + 0.1 * Noise(options_.seed, step, (1u << 30) + 1);
  if (options_.scenario == Scenario::kSpike && step_ >= kEventStep && step_ < kEventStep + kSpikeSteps) {
    loss *= 3;
    grad_norm *= 20;
  }
  if (options_.scenario == Scenario::kNonfinite && step_ >= kEventStep) loss = std::numeric_limits<double>::quiet_NaN();
  if (options_.scenario == Scenario::kStrained && step_ > kEventStep)
    loss += 0.02 * static_cast<double>(step_ - kEventStep);
  loss += overload;
  const std::pair<model::Signal, double> scalars[] = {
      {model::Signal::kLoss, loss}, {model::Signal::kLearningRate, 3e-4}, {model::Signal::kGradNorm, grad_norm}};
  for (const auto& [signal, value] : scalars) {
    out->add_scalar_signals(static_cast<uint32_t>(signal));
    out->add_scalars(value);
  }
}

void SyntheticRun::FillArrays(v1::Report* out) {
  const auto step = static_cast<uint64_t>(step_);
  for (uint32_t layer = 0; layer < options_.layers; ++layer)
    for (uint32_t head = 0; head < options_.heads; ++head)
      logits_[size_t{layer} * options_.heads + head] = LogitMax(layer, head);
  last_logit_ = *std::max_element(logits_.begin(), logits_.end());
  peak_logit_ = std::max(peak_logit_, last_logit_);
  if (options_.scenario == Scenario::kNonfinite && step_ >= kEventStep)
    logits_.back() = std::numeric_limits<float>::infinity();
  AddArray(model::Signal::kAttnLogitMax, logits_, out);
  const std::pair<model::Signal, size_t> per_layer[] = {{model::Signal::kLayerGradNorm, options_.layers},
                                                        {model::Signal::kHiddenMs, options_.layers + 1},
                                                        {model::Signal::kHiddenAbsmax, options_.layers + 1}};
  for (const auto& [signal, length] : per_layer) {
    layer_values_.resize(length);
    for (size_t i = 0; i < length; ++i) {
      const double noise = 1 + 0.01 * Noise(options_.seed, step, (uint64_t{1} << 32) + i);
      layer_values_[i] = static_cast<float>(Usual(signal, i, options_.layers) * noise);
      if (options_.scenario == Scenario::kStrained && signal == model::Signal::kHiddenAbsmax)
        layer_values_[i] *= static_cast<float>(std::min(std::exp(0.01 * static_cast<double>(step_)), kHalfRange / 20));
    }
    AddArray(signal, layer_values_, out);
  }
}

// What only the strained run reports: the first spike scores, more sites, drops. Its stream is in FillArrays.
void SyntheticRun::FillStrain(v1::Report* out) {
  for (const model::Signal score : {model::Signal::kSpikeScoreLoss, model::Signal::kSpikeScoreGradNorm}) {
    out->add_scalar_signals(static_cast<uint32_t>(score));
    out->add_scalars(2.5);
  }
  layer_values_.assign(options_.layers, 0.01f);
  for (const model::Signal site : {model::Signal::kAttnOutMs, model::Signal::kMlpOutMs, model::Signal::kLnInputMs})
    AddArray(site, layer_values_, out);
  out->set_dropped_hot(static_cast<uint64_t>(step_) / 10);
}

void SyntheticRun::NextReport(v1::Report* out) {
  out->Clear();
  out->set_sequence(++sequence_);
  out->set_boundary(static_cast<uint64_t>(step_));
  out->set_step(step_);
  out->set_ledger_version(ledger_version_);
  out->set_step_time_ms(10);
  out->set_attn_logit_kind(v1::AttnLogitInfo::EXACT);
  FillArrays(out);
  FillScalars(std::clamp((last_logit_ - 200) / 100, 0.f, 6.f), out);
  if (options_.scenario == Scenario::kNonfinite && step_ >= kEventStep) out->set_nonfinite_total(2);
  if (options_.scenario == Scenario::kStrained) FillStrain(out);
  ++step_;
}

v1::Ack SyntheticRun::NewAck(const std::string& order_id) const {
  v1::Ack ack;
  ack.set_order_id(order_id);
  ack.set_boundary(static_cast<uint64_t>(step_));
  ack.set_step(step_);
  ack.set_ledger_version_before(ledger_version_);
  ack.set_ledger_version_after(ledger_version_);
  return ack;
}

v1::Ack SyntheticRun::Obey(const v1::LocalClip& order) const {
  v1::Ack ack = NewAck(order.order_id());
  ack.set_outcome(v1::Ack::REFUSED);
  ack.set_reason("a synthetic run does not clip by itself");
  return ack;
}

v1::Ack SyntheticRun::Obey(const v1::Order& order) {
  v1::Ack ack = NewAck(order.order_id());
  if (order.run() != options_.run || order.attempt() != options_.attempt || order.epoch() != 0) {
    ack.set_outcome(v1::Ack::FOREIGN);
    ack.set_reason("the order names another run, attempt or epoch");
    return ack;
  }
  if (order.kind() != v1::QK_CLIP ||
      std::find(options_.allow.begin(), options_.allow.end(), "qk_clip") == options_.allow.end()) {
    ack.set_outcome(v1::Ack::REFUSED);
    ack.set_reason("the job allows no order of this kind");
    return ack;
  }
  if (static_cast<uint64_t>(step_) > order.expires_boundary()) {
    ack.set_outcome(v1::Ack::EXPIRED);
    ack.set_reason("boundary " + std::to_string(step_) + " is after " + std::to_string(order.expires_boundary()));
    return ack;
  }
  const v1::ClipEntries& entries = order.qk_clip().entries();
  for (int i = 0; i < entries.layer_size(); ++i) {
    const size_t index = size_t{entries.layer(i)} * options_.heads + entries.head(i);
    if (entries.layer(i) >= options_.layers || entries.head(i) >= options_.heads) continue;
    const int64_t delta = entries.target_ticks(i) - lambda_ticks_[index];
    if (delta <= 0) continue;
    lambda_ticks_[index] += delta;
    ack.mutable_applied()->add_layer(entries.layer(i));
    ack.mutable_applied()->add_head(entries.head(i));
    ack.mutable_applied()->add_ticks(delta);
  }
  const bool changed = ack.applied().layer_size() > 0;
  ack.set_outcome(changed ? v1::Ack::APPLIED : v1::Ack::VOID);
  if (changed) ack.set_ledger_version_after(++ledger_version_);
  return ack;
}

}  // namespace gyrostat::testing
