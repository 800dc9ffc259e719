#include "detect/update_ratio.h"

#include <algorithm>
#include <cmath>

#include "detect/text.h"

namespace gyrostat::detect {
namespace {

using model::Severity;
using model::Signal;

constexpr uint8_t kStateVersion = 2;

}  // namespace

UpdateRatio::UpdateRatio(const UpdateRatioOptions& options) : options_(options) {}

stats::RobustBaseline UpdateRatio::Fresh() const {
  return stats::RobustBaseline(
      {.window = options_.window_steps, .winsor_mads = 3, .sigma_min = options_.sigma_min});
}

template <class Archive>
void UpdateRatio::Fields(Archive& a) {
  auto count = static_cast<uint32_t>(state_.layers.size());
  a(count, state_.per_rate, state_.conditions, state_.condition, state_.run, state_.quiet, state_.elapsed,
    state_.peak_ratio, state_.last_over, state_.next_key);
  if constexpr (Archive::kLoading) {
    if (count > model::kLayersMax) {
      a.Fail();
      return;
    }
    state_.layers.assign(count, Fresh());
  }
  for (stats::RobustBaseline& layer : state_.layers) a(layer);
}

void UpdateRatio::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  const bool jumped = state_.conditions.Observe(report);
  const std::span<const float> updates = report.Array(Signal::kUpdateRms);
  if (updates.empty()) return;
  if (updates.size() != state_.layers.size()) state_.layers.assign(updates.size(), Fresh());
  const double rate = report.Scalar(Signal::kLearningRate);
  const bool per_rate = report.Has(Signal::kLearningRate) && rate > 0 && std::isfinite(rate);
  // A rate of 0 (the first step of a warm-up) divides nothing and is no other way of reporting.
  if (state_.per_rate && report.Has(Signal::kLearningRate) && !per_rate) return;
  if (per_rate != state_.per_rate || (jumped && !state_.condition.open())) Relearn();
  state_.per_rate = per_rate;
  const Look look = Follow(updates, per_rate ? rate : 1);
  if (look.measured == 0) return;
  if (state_.condition.open())
    Continue(report, look, out);
  else
    Tell(report, look, out);
}

UpdateRatio::Look UpdateRatio::Follow(std::span<const float> updates, double rate) {
  Look look;
  for (size_t i = 0; i < updates.size(); ++i) {
    const double update = updates[i];
    if (!(update > 0) || !std::isfinite(update)) continue;  // Absent, frozen, NaN.
    ++look.measured;
    const double value = std::log(update / rate);
    stats::RobustBaseline& layer = state_.layers[i];
    const bool over = layer.count() >= stats::kBaselineCountMin &&
                      layer.Z(value) >= stats::SmallSampleLimit(options_.deviations, layer.count()) &&
                      value - layer.median() >= std::log(options_.ratio);
    if (!over) {
      layer.Observe(value);
      continue;
    }
    ++look.over;
    const double ratio = std::exp(value - layer.median());
    if (ratio <= look.worst_ratio) continue;
    look.worst_ratio = ratio;
    look.worst = i;
  }
  return look;
}

void UpdateRatio::Tell(const model::Report& report, const Look& look, std::vector<model::Finding>* out) {
  if (look.over == 0) return;
  state_.run = state_.elapsed = 1;
  state_.quiet = 0;
  state_.peak_ratio = look.worst_ratio;
  state_.last_over = report.step;
  const double many = std::max(2.0, options_.layers_share * look.measured);
  model::Finding& finding =
      state_.condition.Open(name(), Signal::kUpdateRms, report.step, report.step, &state_.next_key);
  finding.severity = look.over >= many ? Severity::kWarning : Severity::kInfo;
  finding.layer = static_cast<uint32_t>(look.worst);
  finding.value = report.Array(Signal::kUpdateRms)[look.worst];
  finding.expected = finding.value / look.worst_ratio;
  if (finding.severity == Severity::kWarning) finding.recommend = model::InterventionKind::kLrScale;
  finding.message = Sentence("The update of layer %zu is %.3g times its usual size%s (RMS %.4g) at step %lld; %s of %u "
                             "jumped.", look.worst, look.worst_ratio, state_.per_rate ? " for this learning rate" : "",
                             finding.value, Printable(report.step), Counted(look.over, "layer").c_str(), look.measured);
  state_.condition.Say(out);
}

void UpdateRatio::Continue(const model::Report& report, const Look& look, std::vector<model::Finding>* out) {
  state_.elapsed = Saturating(state_.elapsed);
  if (look.over == 0) {
    state_.run = 0;
    if (++state_.quiet < options_.heal_reports) return;
    state_.condition.End(state_.last_over, true,
                         Sentence("The updates are back at their usual size; the largest was %.3g times that.",
                                  state_.peak_ratio), out);
    return;
  }
  state_.quiet = 0;
  state_.run = Saturating(state_.run);
  state_.last_over = report.step;
  state_.peak_ratio = std::max(state_.peak_ratio, look.worst_ratio);
  if (state_.elapsed >= options_.abandon_reports) {
    state_.condition.End(report.step, false, "The updates did not come back; their new size is taken as the usual one.",
                         out);
    Relearn();
    return;
  }
  const double many = std::max(2.0, options_.layers_share * look.measured);
  model::Finding& finding = state_.condition.finding();
  if (finding.severity >= Severity::kWarning || (state_.run < options_.lasting_reports && look.over < many)) return;
  finding.severity = Severity::kWarning;
  finding.recommend = model::InterventionKind::kLrScale;
  finding.message = Sentence("The updates are up to %.3g times their usual size, in %s, since step %lld.",
                             state_.peak_ratio, Counted(look.over, "layer").c_str(), Printable(finding.step_begin));
  state_.condition.Say(out);
}

void UpdateRatio::Relearn() {
  for (stats::RobustBaseline& layer : state_.layers) layer.Clear();
}

void UpdateRatio::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  if (kind != Break::kIntervention) {
    if (state_.condition.open()) state_.condition.End(state_.last_over, std::nullopt, EndedBy(kind, step), out);
    state_.conditions.Clear();
  } else if (state_.condition.open()) {
    return;
  }
  Relearn();
}

void UpdateRatio::Save(base::ByteWriter* out) const {
  out->Put(kStateVersion);
  base::SaveArchive archive(out);
  const_cast<UpdateRatio*>(this)->Fields(archive);  // One function for both directions; saving changes nothing.
}

bool UpdateRatio::Load(base::ByteReader* in) {
  state_ = State();
  base::LoadArchive archive(in);
  if (in->Get<uint8_t>() == kStateVersion) {
    Fields(archive);
    if (in->ok()) return true;
  }
  state_ = State();
  return false;
}

}  // namespace gyrostat::detect
