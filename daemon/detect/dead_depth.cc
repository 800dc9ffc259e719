#include "detect/dead_depth.h"

#include <algorithm>
#include <cmath>

#include "detect/scan.h"

namespace gyrostat::detect {
namespace {

using model::Severity;
using model::Signal;

constexpr uint32_t kQuiet = 16;

// The larger finite one of two places; absent where neither is.
float Larger(std::span<const float> a, std::span<const float> b, size_t i) {
  const float x = i < a.size() ? FiniteOrAbsent(a[i]) : model::kAbsent;
  const float y = i < b.size() ? FiniteOrAbsent(b[i]) : model::kAbsent;
  return std::max(x, y);
}

}  // namespace

DeadDepth::DeadDepth(const DeadDepthOptions& options, const model::ModelSpec& spec)
    : options_(options), spec_(spec), state_(spec) {}

void DeadDepth::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  state_.warmup.Observe(report);
  const std::span<const float> attention = report.Array(Signal::kAttnOutMs), mlp = report.Array(Signal::kMlpOutMs);
  const std::span<const float> hidden = report.Array(Signal::kHiddenMs);
  const size_t layers = std::max(attention.size(), mlp.size());
  if (layers == 0 || (hidden.size() != layers && hidden.size() != layers + 1)) return;
  if (state_.silent.size() != layers) state_.silent.assign(layers, 0);
  const double limit = options_.dead_ratio * options_.dead_ratio;  // In mean squares.
  uint32_t dead = 0, quietest = 0, measured = 0;
  double smallest = INFINITY;
  for (size_t l = 0; l < layers; ++l) {
    const float branch = Larger(attention, mlp, l);
    const float stream = FiniteOrAbsent(hidden[hidden.size() == layers ? l : l + 1]);
    if (branch >= 0 && stream > 0) {  // What was not measured keeps its count.
      ++measured;
      const double share = static_cast<double>(branch) / stream;
      uint16_t& silent = state_.silent[l];
      silent = share < limit ? static_cast<uint16_t>(std::min(silent + 1, int{UINT16_MAX})) : uint16_t{0};
      if (silent >= options_.dead_reports && share < smallest) smallest = share, quietest = static_cast<uint32_t>(l);
    }
    if (state_.silent[l] >= options_.dead_reports) ++dead;
  }
  if (measured == 0) return;
  std::optional<Severity> severity;
  if (dead > 0) severity = Severity::kInfo;
  const double many = std::max(2.0, options_.warning_share * static_cast<double>(layers));
  if (dead >= many && !state_.warmup.rising()) severity = Severity::kWarning;
  state_.dead.Observe(
      severity, {.hold = 1, .quiet = kQuiet}, {name(), report.step, &state_.next_key, out},
      [&](model::Finding* finding) {
        finding->signal = attention.empty() ? Signal::kMlpOutMs : Signal::kAttnOutMs;
        finding->layer = quietest;
        finding->value = Larger(attention, mlp, quietest);
        finding->expected = limit * hidden[hidden.size() == layers ? quietest : quietest + 1];
        finding->message = Sentence("%s of %zu no longer write: what layer %u adds is 1/%.0f of the residual stream.",
                                    Counted(dead, "layer").c_str(), layers, quietest,
                                    1 / std::sqrt(std::max(smallest, 1e-30)));
      },
      [&] { return Sentence("All layers write into the residual stream again."); });
}

void DeadDepth::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  if (kind == Break::kIntervention) return;
  state_.dead.Break(EndedBy(kind, step), out);
  std::fill(state_.silent.begin(), state_.silent.end(), uint16_t{0});
  state_.warmup.Clear();
}

}  // namespace gyrostat::detect
