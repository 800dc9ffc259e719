#include "detect/grad_growth.h"

#include <algorithm>
#include <cmath>

#include "detect/text.h"

namespace gyrostat::detect {
namespace {

using model::Severity;
using model::Signal;

constexpr uint8_t kStateVersion = 2;
// Over at this share of the ratio's logarithm: it must not flap.
constexpr double kEndShare = 0.5;

stats::ClimbOptions Climbing(const GradGrowthOptions& options) {
  return {.window = options.window_steps, .noise_window = 256, .noise_share = 0};
}

double RatioOf(const stats::Climb& climb) { return std::exp(climb.excess()); }

}  // namespace

template <class Archive>
void GradGrowth::State::Fields(Archive& a) {
  auto count = static_cast<uint32_t>(layers.size());
  a(global, count, conditions, reports, total, layer, alone_held, last_over, next_key);
  if constexpr (Archive::kLoading) {
    if (count > model::kLayersMax) {
      a.Fail();
      return;
    }
    layers.assign(count, fresh_layer);
  }
  for (Series& series : layers) a(series);
}

GradGrowth::State::State(const GradGrowthOptions& options)
    : global(Climbing(options)), fresh_layer(Climbing(options)) {}

GradGrowth::GradGrowth(const GradGrowthOptions& options, const model::ModelSpec& spec)
    : options_(options), warmup_steps_(spec.warmup_steps.value_or(0)), state_(options) {}

// Whether this series is over the lower ratio now.
bool GradGrowth::Follow(double norm, model::Step step, Series* series) const {
  if (!(norm > 0) || !std::isfinite(norm)) return series->held > 0;  // -1, 0, NaN: not measured.
  series->climb.Observe(std::log(norm));
  const double deviations = series->climb.Deviations();
  const bool over = series->climb.excess() >= std::log(options_.info_ratio) && deviations >= options_.deviations;
  if (!over) {
    series->held = 0;
    return false;
  }
  if (series->held == 0) series->since = step;
  series->held = Saturating(series->held);
  return true;
}

void GradGrowth::FollowLayers(const model::Report& report) {
  const std::span<const float> norms = report.Array(Signal::kLayerGradNorm);
  if (norms.empty()) return;
  if (norms.size() != state_.layers.size()) state_.layers.assign(norms.size(), state_.fresh_layer);
  for (size_t i = 0; i < norms.size(); ++i)
    if (!model::IsAbsent(norms[i])) Follow(norms[i], report.step, &state_.layers[i]);
}

void GradGrowth::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  const bool jumped = state_.conditions.Observe(report);
  if (jumped && !state_.total.open() && !state_.layer.open()) Relearn();
  state_.reports = Saturating(state_.reports);
  const bool settled = warmup_steps_ > 0 ? report.step >= static_cast<model::Step>(warmup_steps_)
                                         : state_.reports > options_.settle_reports;
  if (!settled) return;
  if (report.Has(Signal::kGradNorm)) {
    Follow(report.Scalar(Signal::kGradNorm), report.step, &state_.global);
    FollowLayers(report);
    ObserveTotal(report.step, out);
  } else {
    FollowLayers(report);
  }
  if (report.Has(Signal::kLayerGradNorm)) ObserveLayer(report.step, out);
}

std::optional<size_t> GradGrowth::FirstMover() const {
  std::optional<size_t> first;
  for (size_t i = 0; i < state_.layers.size(); ++i) {
    const Series& series = state_.layers[i];
    if (series.held >= options_.hold_reports && (!first || series.since < state_.layers[*first].since)) first = i;
  }
  return first;
}

void GradGrowth::ObserveTotal(model::Step step, std::vector<model::Finding>* out) {
  const Series& global = state_.global;
  const double ratio = RatioOf(global.climb);
  if (state_.total.open()) {
    if (std::log(ratio) < kEndShare * std::log(options_.info_ratio)) {
      state_.total.End(state_.last_over, true, Sentence("grad_norm is back at %.3g times its lowest level.", ratio),
                       out);
      return;
    }
    if (global.held > 0) state_.last_over = step;
    const bool worse = global.held >= options_.hold_reports && ratio >= options_.warning_ratio;
    if (!worse || state_.total.finding().severity >= Severity::kWarning) return;
  } else if (global.held < options_.hold_reports) {
    return;
  } else {
    state_.total.Open(name(), Signal::kGradNorm, global.since, step, &state_.next_key);
    state_.last_over = step;
  }
  model::Finding& finding = state_.total.finding();
  finding.severity = ratio >= options_.warning_ratio ? Severity::kWarning : Severity::kInfo;
  finding.value = std::exp(global.climb.level());
  finding.expected = std::exp(global.climb.lowest());
  if (finding.severity == Severity::kWarning) finding.recommend = model::InterventionKind::kLrScale;
  finding.message = Sentence("grad_norm has crept up to %.4g, %.3g times its lowest level %.4g, since step %lld",
                             finding.value, ratio, finding.expected, Printable(finding.step_begin));
  if (const std::optional<size_t> first = FirstMover()) {
    finding.layer = static_cast<uint32_t>(*first);
    finding.message += Sentence("; layer %u moved first, at step %lld", *finding.layer,
                                Printable(state_.layers[*first].since));
  }
  finding.message += ".";
  state_.total.Say(out);
}

// A layer that grows while the middle one does not: what moves all layers is the batch or the rate.
void GradGrowth::ObserveLayer(model::Step step, std::vector<model::Finding>* out) {
  size_t worst = 0, moving = 0;
  for (size_t i = 0; i < state_.layers.size(); ++i) {
    const stats::Climb& climb = state_.layers[i].climb;
    if (climb.excess() > state_.layers[worst].climb.excess()) worst = i;
    if (climb.excess() >= std::log(options_.info_ratio)) ++moving;
  }
  const Series& series = state_.layers[worst];
  const double ratio = RatioOf(series.climb);
  if (state_.layer.open()) {
    if (std::log(ratio) >= kEndShare * std::log(options_.layer_ratio)) return;
    state_.layer.End(step, true, Sentence("No layer's gradient norm is %.3g times its lowest level any more.",
                                          options_.layer_ratio), out);
    return;
  }
  const bool alone = ratio >= options_.layer_ratio && series.held >= options_.hold_reports &&
                     2 * moving <= state_.layers.size();
  state_.alone_held = alone ? Saturating(state_.alone_held) : 0;
  if (state_.alone_held < options_.hold_reports) return;
  model::Finding& finding = state_.layer.Open(name(), Signal::kLayerGradNorm, series.since, step, &state_.next_key);
  finding.severity = Severity::kInfo;
  finding.layer = static_cast<uint32_t>(worst);
  finding.value = std::exp(series.climb.level());
  finding.expected = std::exp(series.climb.lowest());
  finding.message = Sentence("The gradient norm of layer %u has grown to %.4g, %.3g times its lowest level, since step "
                             "%lld; most layers have not moved.", *finding.layer, finding.value, ratio,
                             Printable(finding.step_begin));
  state_.layer.Say(out);
}

void GradGrowth::Relearn() {
  state_.global = state_.fresh_layer;
  std::fill(state_.layers.begin(), state_.layers.end(), state_.fresh_layer);
  state_.alone_held = 0;
}

void GradGrowth::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  if (kind != Break::kIntervention) {
    if (state_.total.open()) state_.total.End(state_.last_over, std::nullopt, EndedBy(kind, step), out);
    if (state_.layer.open()) state_.layer.End(step, std::nullopt, EndedBy(kind, step), out);
    state_.conditions.Clear();
    state_.reports = 0;
  } else if (state_.total.open() || state_.layer.open()) {
    return;  // What is open goes on being judged by the level before it.
  }
  Relearn();
}

void GradGrowth::Save(base::ByteWriter* out) const { SaveState(kStateVersion, state_, out); }

bool GradGrowth::Load(base::ByteReader* in) { return LoadState(kStateVersion, State(options_), in, &state_); }

}  // namespace gyrostat::detect
