#include "detect/adam_eps.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "detect/text.h"

namespace gyrostat::detect {
namespace {

using model::Severity;
using model::Signal;

constexpr double kParametersPerWidthSquared = 12;
constexpr double kEndTimes = 2;

double RootOfParameters(const AdamEpsOptions& options, const model::ModelSpec& spec) {
  std::string optimizer = spec.optimizer;
  std::transform(optimizer.begin(), optimizer.end(), optimizer.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (optimizer.find("adam") == std::string::npos) return 0;
  if (options.layer_parameters > 0) return std::sqrt(options.layer_parameters);
  return std::sqrt(kParametersPerWidthSquared) * spec.hidden_size;
}

}  // namespace

AdamEps::AdamEps(const AdamEpsOptions& options, const model::ModelSpec& spec)
    : options_(options), root_parameters_(RootOfParameters(options, spec)) {}

void AdamEps::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  const std::span<const float> norms = report.Array(Signal::kLayerGradNorm);
  if (norms.empty() || !(root_parameters_ > 0)) return;
  if (norms.size() != state_.layers.size()) state_.layers.assign(norms.size(), Layer());
  size_t smallest = norms.size();
  double least = 0;
  for (size_t i = 0; i < norms.size(); ++i) {
    const double norm = norms[i];
    if (!(norm > 0) || !std::isfinite(norm)) continue;  // Absent, frozen, NaN.
    const double ratio = norm / root_parameters_ / options_.eps;
    Layer& layer = state_.layers[i];
    layer.low = ratio <= options_.info_ratio ? Saturating(layer.low) : 0;
    layer.very_low = ratio <= options_.warning_ratio ? Saturating(layer.very_low) : 0;
    if (smallest != norms.size() && ratio >= least) continue;
    least = ratio;
    smallest = i;
  }
  if (smallest != norms.size()) Tell(report.step, smallest, least, out);
}

void AdamEps::Tell(model::Step step, size_t smallest, double ratio, std::vector<model::Finding>* out) {
  if (ratio <= options_.info_ratio) state_.last_low = step;
  if (state_.condition.open()) {
    model::Finding& finding = state_.condition.finding();
    const double line = finding.severity == Severity::kWarning ? options_.warning_ratio : options_.info_ratio;
    if (ratio > kEndTimes * line) {
      state_.condition.End(state_.last_low, true,
                           Sentence("The smallest gradients are %.3g times Adam's epsilon again.", ratio), out);
      return;
    }
  }
  const Layer& layer = state_.layers[smallest];
  if (layer.low < options_.hold_reports) return;
  const auto severity = layer.very_low >= options_.hold_reports ? Severity::kWarning : Severity::kInfo;
  if (state_.condition.open() && severity <= state_.condition.finding().severity) return;
  if (!state_.condition.open())
    state_.condition.Open(name(), Signal::kLayerGradNorm, step, step, &state_.next_key);
  model::Finding& finding = state_.condition.finding();
  finding.severity = severity;
  finding.layer = static_cast<uint32_t>(smallest);
  finding.value = ratio * options_.eps * root_parameters_;
  finding.expected = options_.info_ratio * options_.eps * root_parameters_;
  finding.message = Sentence("The gradients of layer %zu are %.3g times Adam's epsilon (RMS %.3g, epsilon %.3g): its "
                             "updates are %.2g of what they should be. A smaller epsilon is the cure.", smallest, ratio,
                             ratio * options_.eps, options_.eps, 1 / (1 + 1 / ratio));
  state_.condition.Say(out);
}

void AdamEps::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  if (kind == Break::kIntervention) return;
  if (state_.condition.open()) state_.condition.End(state_.last_low, std::nullopt, EndedBy(kind, step), out);
  state_.layers.assign(state_.layers.size(), Layer());
}

}  // namespace gyrostat::detect
