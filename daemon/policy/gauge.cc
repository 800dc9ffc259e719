#include "policy/gauge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "policy/words.h"

namespace gyrostat::policy {
namespace {

using model::Signal;

constexpr double kTiny = 1e-30;  // A gradient of exactly 0 has no logarithm.

double Log(double value) { return std::isfinite(value) ? std::log(std::max(value, kTiny)) : value; }

// The largest measured value; not finite as soon as one is not.
std::optional<double> Largest(std::span<const float> values) {
  std::optional<double> largest;
  for (const float value : values) {
    if (model::IsAbsent(value)) continue;
    if (!std::isfinite(value)) return value;
    largest = std::max(largest.value_or(value), static_cast<double>(value));
  }
  return largest;
}

std::optional<double> LogOf(std::optional<double> value) { return value ? std::optional(Log(*value)) : std::nullopt; }

std::optional<double> Scalar(const model::Report& report, Signal signal) {
  return report.Has(signal) ? std::optional(report.Scalar(signal)) : std::nullopt;
}

bool IsNorm(float value) { return !model::IsAbsent(value) && std::isfinite(value) && value > 0; }

std::optional<double> RatioOf(std::span<const float> norms) {
  if (norms.size() < 2 || !IsNorm(norms.front()) || !IsNorm(norms.back())) return std::nullopt;
  return std::log(static_cast<double>(norms.back()) / static_cast<double>(norms.front()));
}

std::optional<double> RoughnessOf(std::span<const float> norms, std::span<const float> previous) {
  std::optional<double> largest;
  if (norms.size() != previous.size()) return std::nullopt;
  for (size_t i = 0; i < norms.size(); ++i) {
    if (!IsNorm(norms[i]) || !IsNorm(previous[i])) continue;
    const double change = std::fabs(std::log(static_cast<double>(norms[i]) / static_cast<double>(previous[i])));
    largest = std::max(largest.value_or(0), change);
  }
  return largest;
}

}  // namespace

const char* Words(Gauge gauge) {
  switch (gauge) {
    case Gauge::kLoss: return "the loss";
    case Gauge::kGradNorm: return "the gradient norm";
    case Gauge::kGradRatio: return "the last block's gradient over the first's";
    case Gauge::kLayerGradNorm: return "the largest gradient norm of a block";
    case Gauge::kGradRoughness: return "the step-to-step change of block gradients (log)";
    case Gauge::kLnInput: return "the largest mean square before a closing norm";
    case Gauge::kHiddenAbsmax: return "the largest hidden state";
    case Gauge::kLogZ: return "|log Z|";
    case Gauge::kLossScale: return "the inverse of the loss scale";
    case Gauge::kUpdateRms: return "the largest RMS of an update";
  }
  return "";
}

std::string Shown(Gauge gauge, double level) {
  const bool plain = gauge == Gauge::kLoss || gauge == Gauge::kLogZ || gauge == Gauge::kGradRoughness;
  return Number(plain ? level : std::exp(level));
}

Gauge GaugeOf(const std::string& detector, Signal signal) {
  if (detector == "grad_profile") return Gauge::kGradRatio;
  if (detector == "grad_roughness") return signal == Signal::kGradNorm ? Gauge::kGradNorm : Gauge::kGradRoughness;
  switch (signal) {
    case Signal::kGradNorm:
    case Signal::kSpikeScoreGradNorm: return Gauge::kGradNorm;
    case Signal::kLayerGradNorm: return Gauge::kLayerGradNorm;
    case Signal::kLnInputMs: return Gauge::kLnInput;
    case Signal::kHiddenMs:
    case Signal::kHiddenAbsmax: return Gauge::kHiddenAbsmax;
    case Signal::kLogZ: return Gauge::kLogZ;
    case Signal::kLossScale: return Gauge::kLossScale;
    case Signal::kUpdateRms: return Gauge::kUpdateRms;
    default: return Gauge::kLoss;
  }
}

Levels GaugeHistory::Observe(const model::Report& report) {
  const std::span<const float> norms = report.Array(Signal::kLayerGradNorm);
  Levels levels;
  const auto set = [&levels](Gauge gauge, std::optional<double> level) { levels[static_cast<size_t>(gauge)] = level; };
  set(Gauge::kLoss, Scalar(report, Signal::kLoss));
  set(Gauge::kGradNorm, LogOf(Scalar(report, Signal::kGradNorm)));
  set(Gauge::kGradRatio, RatioOf(norms));
  set(Gauge::kLayerGradNorm, LogOf(Largest(norms)));
  set(Gauge::kGradRoughness, RoughnessOf(norms, previous_norms_));
  set(Gauge::kLnInput, LogOf(Largest(report.Array(Signal::kLnInputMs))));
  const Signal hidden = report.Has(Signal::kHiddenAbsmax) ? Signal::kHiddenAbsmax : Signal::kHiddenMs;
  set(Gauge::kHiddenAbsmax, LogOf(Largest(report.Array(hidden))));
  if (const auto log_z = Scalar(report, Signal::kLogZ)) set(Gauge::kLogZ, std::fabs(*log_z));
  if (const auto scale = Scalar(report, Signal::kLossScale)) set(Gauge::kLossScale, -Log(*scale));
  set(Gauge::kUpdateRms, LogOf(Largest(report.Array(Signal::kUpdateRms))));
  if (!norms.empty()) previous_norms_.assign(norms.begin(), norms.end());
  for (size_t i = 0; i < kGauges; ++i) {
    if (!levels[i]) continue;
    kept_[i].push_back(static_cast<float>(*levels[i]));
    if (kept_[i].size() > kKept) kept_[i].pop_front();
  }
  return levels;
}

void GaugeHistory::Clear() { *this = GaugeHistory(); }

std::vector<double> GaugeHistory::Newest(Gauge gauge, size_t count) const {
  const std::deque<float>& all = kept_[static_cast<size_t>(gauge) % kGauges];
  const size_t taken = std::min(count, all.size());
  return {all.end() - static_cast<std::ptrdiff_t>(taken), all.end()};
}

double MedianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  for (double& value : values)
    if (std::isnan(value)) value = std::numeric_limits<double>::infinity();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace gyrostat::policy
