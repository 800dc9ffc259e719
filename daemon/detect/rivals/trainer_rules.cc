#include "detect/rivals/trainer_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace gyrostat::detect::rivals {
namespace {

using model::Severity;
using model::Signal;

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void Push(double value, size_t size_max, std::vector<double>* values) {
  if (values->size() >= size_max) values->erase(values->begin());
  values->push_back(value);
}

// The z-score of the new value, which is in the window by then; NaN while the window fills.
double Update(double value, LlmcSums* sums) {
  constexpr size_t kWindow = 128;
  if (sums->ring.size() < kWindow) {
    sums->ring.push_back(value);
    sums->sum += value;
    sums->squares += value * value;
    return std::numeric_limits<double>::quiet_NaN();
  }
  double& slot = sums->ring[sums->next];
  sums->sum += value - slot;
  sums->squares += value * value - slot * slot;
  slot = value;
  sums->next = (sums->next + 1) % kWindow;
  const double mean = sums->sum / kWindow;
  const double std = std::sqrt(sums->squares / kWindow - mean * mean);
  return std == 0 ? 0 : (value - mean) / std;
}

}  // namespace

Rival::Verdict ZClip::Judge(const model::Report& report) {
  constexpr size_t kWarmup = 25;
  constexpr double kAlpha = 0.97, kThreshold = 2.5, kEps = 1e-6;
  if (!report.Has(Signal::kGradNorm)) return {};
  const double norm = report.Scalar(Signal::kGradNorm);
  if (!state_.begun) {
    state_.buffer.push_back(norm);
    if (state_.buffer.size() < kWarmup) return {};
    state_.mean = Mean(state_.buffer);
    for (const double v : state_.buffer) state_.variance += (v - state_.mean) * (v - state_.mean);
    state_.variance /= static_cast<double>(kWarmup);
    state_.begun = true;
    state_.buffer.clear();
    return {};
  }
  Verdict verdict;
  const double std = std::sqrt(state_.variance), z = (norm - state_.mean) / (std + kEps);
  double left = norm;
  if (z > kThreshold) {
    left = state_.mean + kThreshold * std / (z / kThreshold);
    verdict = {.fired = true, .signal = Signal::kGradNorm, .value = norm,
               .limit = state_.mean + kThreshold * (std + kEps)};
  }
  state_.mean = kAlpha * state_.mean + (1 - kAlpha) * left;
  state_.variance = kAlpha * state_.variance + (1 - kAlpha) * (left - state_.mean) * (left - state_.mean);
  return verdict;
}

Rival::Verdict Megatron::Judge(const model::Report& report) {
  constexpr uint32_t kSamples = 100;
  constexpr double kFactor = 10;
  if (!report.Has(Signal::kLoss)) return {};
  const double value = std::fabs(report.Scalar(Signal::kLoss));
  if (!std::isfinite(value)) return {};
  if (state_.samples < kSamples) {
    ++state_.samples;
    state_.largest = std::max(state_.largest, value);
    return {};
  }
  const double limit = kFactor * state_.largest;
  return {.fired = value >= limit, .signal = Signal::kLoss, .value = value, .limit = limit};
}

// Once the first window is full: 5 % of the run where its length is known.
void LlmFoundry::SetSize() {
  constexpr double kShare = 0.05;
  const double wanted = std::round(kShare * static_cast<double>(total_steps_));
  state_.size = std::max(state_.size, static_cast<uint32_t>(std::min(wanted, 1e6)));
  state_.size_set = true;
}

Rival::Verdict LlmFoundry::Judge(const model::Report& report) {
  constexpr uint32_t kFirstWindow = 100, kPatience = 4;
  constexpr double kMultiplier = 2;
  if (!report.Has(Signal::kLoss)) return {};
  const double loss = report.Scalar(Signal::kLoss);
  ++state_.batches;
  Verdict verdict;
  if (state_.window.size() == state_.size) {
    if (!state_.size_set) {
      SetSize();
      if (state_.size > kFirstWindow) {
        Push(loss, state_.size, &state_.window);
        return {};
      }
    }
    if (!state_.cap_set && state_.batches == state_.size + uint64_t{1}) {
      state_.cap = std::min(*std::max_element(state_.window.begin(), state_.window.end()), state_.cap);
      state_.cap_set = true;
    }
    const double limit = kMultiplier * Mean(state_.window);
    state_.outliers = loss >= limit ? state_.outliers + 1 : 0;
    const bool spike = state_.outliers > kPatience;
    const auto high = std::count_if(state_.window.begin(), state_.window.end(),
                                    [this](double v) { return v > state_.cap; });
    const bool highs = state_.batches >= 2 * uint64_t{state_.size} && 2 * high >= static_cast<int64_t>(state_.size);
    verdict = {.fired = spike || highs, .signal = Signal::kLoss, .value = loss, .limit = spike ? limit : state_.cap,
               .severity = Severity::kCritical};
  }
  Push(loss, state_.size, &state_.window);
  return verdict;
}

Rival::Verdict Lightning::Judge(const model::Report& report) {
  constexpr size_t kWindow = 10;
  constexpr double kTolerance = 2;
  if (!report.Has(Signal::kLoss)) return {};
  const double loss = report.Scalar(Signal::kLoss);
  const bool warm = state_.batches++ >= 1;
  Verdict verdict{.signal = Signal::kLoss, .value = loss, .severity = Severity::kCritical};
  if (warm && !std::isfinite(loss)) {
    verdict.fired = true;
  } else if (warm && loss > state_.last && !state_.window.empty()) {
    const double mean = Mean(state_.window), reach = std::fabs(kTolerance * mean);
    verdict.limit = mean + reach;
    verdict.fired = std::fabs(loss - mean) >= reach;
  }
  if (verdict.fired) return verdict;
  Push(loss, kWindow, &state_.window);
  state_.last = loss;
  return verdict;
}

Rival::Verdict Llmc::Judge(const model::Report& report) {
  constexpr std::array<Signal, 2> kSignals = {Signal::kLoss, Signal::kGradNorm};
  constexpr double kThreshold = 7;
  Verdict verdict;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (!report.Has(kSignals[i])) continue;
    const double value = report.Scalar(kSignals[i]), z = Update(value, &state_.series[i]);
    if (std::isfinite(z) && z > kThreshold && !verdict.fired)
      verdict = {.fired = true, .signal = kSignals[i], .value = value, .limit = kThreshold * value / z};
  }
  return verdict;
}

}  // namespace gyrostat::detect::rivals
