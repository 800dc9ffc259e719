#include "detect/grad_roughness.h"

#include <algorithm>
#include <cmath>

#include "detect/text.h"

namespace gyrostat::detect {
namespace {

using model::NormPlacement;
using model::Severity;
using model::Signal;

constexpr uint8_t kStateVersion = 2;
constexpr double kNone = static_cast<double>(model::kAbsent);
// The global norm is smooth again at this share of what began it.
constexpr double kTotalEndShare = 0.75;

// The deviation of values that are no larger than a few, so that the mean of squares keeps its digits. Four lanes: in
// one sum each addition waits for the one before it, and there is a window of them for every layer.
double Deviation(const double* values, uint32_t count) {
  constexpr uint32_t kLanes = 4;
  double sums[kLanes] = {}, squares[kLanes] = {};
  uint32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) sums[lane] += values[i + lane];
    for (uint32_t lane = 0; lane < kLanes; ++lane) squares[lane] += values[i + lane] * values[i + lane];
  }
  for (; i < count; ++i) {
    sums[i % kLanes] += values[i];
    squares[i % kLanes] += values[i] * values[i];
  }
  const double mean = ((sums[0] + sums[1]) + (sums[2] + sums[3])) / count;
  const double mean_square = ((squares[0] + squares[1]) + (squares[2] + squares[3])) / count;
  return std::sqrt(std::max(0.0, mean_square - mean * mean));
}

}  // namespace

GradRoughness::GradRoughness(const GradRoughnessOptions& options, const model::ModelSpec& spec)
    : options_(options),
      post_family_(spec.norm_placement == NormPlacement::kPost || spec.norm_placement == NormPlacement::kDeepnorm),
      state_(options) {}

void GradRoughness::Start(size_t layers) {
  state_.previous.assign(layers, kNone);
  state_.differences.assign(layers * options_.window_steps, 0);
  state_.count.assign(layers, 0);
}

void GradRoughness::Follow(std::span<const float> norms) {
  for (size_t i = 0; i < norms.size(); ++i) {
    const double norm = norms[i];
    // Absent, zero, negative, NaN: the next difference would span a hole.
    if (!(norm > 0) || !std::isfinite(norm)) {
      state_.previous[i] = kNone;
      continue;
    }
    const double value = std::log(norm), before = state_.previous[i];
    state_.previous[i] = value;
    if (before == kNone) continue;
    const double limit = options_.difference_max;
    double* ring = &state_.differences[i * options_.window_steps];
    ring[state_.count[i] % options_.window_steps] = std::clamp((value - before) / std::sqrt(2.0), -limit, limit);
    // Kept below twice the window, so that it never wraps out of step with the ring.
    if (++state_.count[i] == 2 * options_.window_steps) state_.count[i] = options_.window_steps;
  }
}

// 0 until the window is full.
double GradRoughness::Roughness(size_t layer) const {
  const uint32_t window = options_.window_steps;
  if (state_.count[layer] < window) return 0;
  return Deviation(&state_.differences[layer * window], window);
}

void GradRoughness::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  // The jump itself is no roughness; what follows is.
  if (state_.conditions.Observe(report)) {
    std::fill(state_.previous.begin(), state_.previous.end(), kNone);
    state_.total.roughness.Gap();
  }
  if (report.Has(Signal::kGradNorm)) ObserveTotal(report, out);
  if (!report.Array(Signal::kLayerGradNorm).empty()) ObserveLayers(report, out);
}

void GradRoughness::ObserveTotal(const model::Report& report, std::vector<model::Finding>* out) {
  Total& total = state_.total;
  total.roughness.Observe(report.Scalar(Signal::kGradNorm));
  const double now = total.roughness.Over(options_.window_steps);
  const double brief = total.roughness.Over(options_.total_short_steps);
  const double usual = total.roughness.Over(options_.total_long_steps);
  if (usual > 0 && (total.lowest == 0 || usual < total.lowest)) total.lowest = usual;
  // 1: at the nearest of the three limits.
  double over = std::max(now / options_.total_roughness, brief / options_.total_roughness_short);
  if (total.lowest > 0 && now >= options_.total_roughness_min)
    over = std::max(over, now / (options_.total_ratio * total.lowest));
  if (over >= 1) total.last_rough = report.step;
  if (total.condition.open()) {
    if (over < kTotalEndShare)
      total.condition.End(total.last_rough, true, Sentence("The gradient norm is smooth again: roughness %.2f.", now),
                          out);
    return;
  }
  if (over < 1) return;
  model::Finding& finding =
      total.condition.Open(name(), Signal::kGradNorm, report.step, report.step, &state_.next_key);
  finding.severity = Severity::kWarning;
  finding.value = std::max(now, brief);
  finding.expected = total.lowest;
  finding.message = Sentence("grad_norm has become rough: it changes by a factor of %.2g from one step to the next",
                             std::exp(finding.value * std::sqrt(2.0)));
  if (total.lowest > 0)
    finding.message += Sentence(", where %.2g was usual", std::exp(total.lowest * std::sqrt(2.0)));
  finding.message += ". Bursts of spikes begin like this.";
  total.condition.Say(out);
}

void GradRoughness::ObserveLayers(const model::Report& report, std::vector<model::Finding>* out) {
  const std::span<const float> norms = report.Array(Signal::kLayerGradNorm);
  if (norms.size() != state_.previous.size()) Start(norms.size());
  Follow(norms);
  size_t worst = 0;
  double most = 0;
  for (size_t i = 0; i < norms.size(); ++i) {
    const double roughness = Roughness(i);
    if (roughness <= most) continue;
    most = roughness;
    worst = i;
  }
  Tell(report, worst, most, out);
}

void GradRoughness::Tell(const model::Report& report, size_t layer, double roughness,
                         std::vector<model::Finding>* out) {
  if (roughness >= options_.info_roughness) state_.last_rough = report.step;
  const auto severity = roughness >= options_.warning_roughness ? Severity::kWarning : Severity::kInfo;
  if (state_.condition.open()) {
    if (roughness > 0 && roughness <= options_.end_roughness) {
      state_.condition.End(state_.last_rough, true, "The gradient norms of all blocks are smooth again.", out);
      return;
    }
    if (roughness < options_.info_roughness || severity <= state_.condition.finding().severity) return;
  } else {
    if (roughness < options_.info_roughness) return;
    state_.condition.Open(name(), Signal::kLayerGradNorm, report.step, report.step, &state_.next_key);
  }
  model::Finding& finding = state_.condition.finding();
  finding.severity = severity;
  if (!finding.layer) finding.layer = static_cast<uint32_t>(layer);
  finding.expected = options_.warning_roughness;
  // A larger residual scale turns such a run round (experiments.md §5); a lower rate does so only early.
  if (severity == Severity::kWarning)
    finding.recommend = post_family_ ? model::InterventionKind::kDeepnormAlpha : model::InterventionKind::kLrScale;
  finding.value = roughness;
  finding.message = Sentence("The gradient norm of layer %zu changes by a factor of %.2g from one step to the next "
                             "(roughness %.2f over %u steps; healthy runs stay below %.2g).", layer,
                             std::exp(roughness * std::sqrt(2.0)), roughness, options_.window_steps,
                             options_.warning_roughness);
  state_.condition.Say(out);
}

void GradRoughness::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  Total& total = state_.total;
  if (kind != Break::kIntervention && total.condition.open())
    total.condition.End(total.last_rough, std::nullopt, EndedBy(kind, step), out);
  if (total.condition.open()) {
    total.roughness.Gap();
  } else {
    total.roughness.Clear();
    total.lowest = 0;
  }
  if (kind != Break::kIntervention) {
    if (state_.condition.open()) state_.condition.End(state_.last_rough, std::nullopt, EndedBy(kind, step), out);
    state_.conditions.Clear();
  } else if (state_.condition.open()) {
    // Whether it becomes smooth again is the question: only the difference across the order is left out.
    std::fill(state_.previous.begin(), state_.previous.end(), kNone);
    return;
  }
  Start(state_.previous.size());
}

void GradRoughness::Save(base::ByteWriter* out) const { SaveState(kStateVersion, state_, out); }

bool GradRoughness::Load(base::ByteReader* in) {
  if (!LoadState(kStateVersion, State(options_), in, &state_)) return false;
  const bool fits = state_.differences.size() == state_.previous.size() * options_.window_steps &&
                    std::all_of(state_.count.begin(), state_.count.end(),
                                [this](uint32_t n) { return n < 2 * options_.window_steps; });
  if (!fits) state_ = State(options_);
  return fits;
}

}  // namespace gyrostat::detect
