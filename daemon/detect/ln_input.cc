#include "detect/ln_input.h"

#include <algorithm>
#include <cmath>

#include "detect/scan.h"

namespace gyrostat::detect {
namespace {

using model::NormPlacement;
using model::Severity;
using model::Signal;

constexpr uint32_t kQuiet = 16;

double MedianOf3(const double* v) { return std::max(std::min(v[0], v[1]), std::min(std::max(v[0], v[1]), v[2])); }

// The residual scale: declared, or DeepNorm's own for a decoder (arXiv 2203.00555 Fig. 2). 0: not known.
double Alpha(const model::ModelSpec& spec, NormPlacement placement) {
  if (spec.deepnorm_alpha && *spec.deepnorm_alpha > 0) return *spec.deepnorm_alpha;
  if (placement == NormPlacement::kDeepnorm) return std::pow(2.0 * spec.layers, 0.25);
  return placement == NormPlacement::kKeel ? 0 : 1;
}

}  // namespace

LnInput::LnInput(const LnInputOptions& options, const model::ModelSpec& spec)
    : options_(options), spec_(spec), state_(spec) {
  const model::Architecture& architecture = model::ArchitectureOf(spec);
  applies_ = architecture.ln_input_ms > 0;
  usual_rms_ = std::sqrt(architecture.ln_input_ms) * Alpha(spec, architecture.placement);
}

void LnInput::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  state_.warmup.Observe(report);
  const std::span<const float> values = report.Array(Signal::kLnInputMs);
  if (!applies_ || values.empty()) return;
  const float largest = MaxFinite(values);
  if (!(largest > 0)) return;
  const double rms = std::sqrt(static_cast<double>(largest));
  const auto layer = static_cast<uint32_t>(IndexOf(values, largest));
  if (state_.known == kKept) std::move(state_.logs.begin() + 1, state_.logs.end(), state_.logs.begin());
  else ++state_.known;
  state_.logs[state_.known - 1] = std::log(rms);
  const Sustained::Context context{name(), report.step, &state_.next_key, out};
  const auto fill = [&](model::Finding* finding, double value, double expected) {
    finding->signal = Signal::kLnInputMs;
    finding->layer = layer;
    finding->value = value;
    finding->expected = expected;
    finding->recommend.reset();
    if (state_.warmup.rising()) finding->recommend = model::InterventionKind::kWarmupExtension;
  };

  if (state_.known == kKept) {
    const double ratio = std::exp(MedianOf3(state_.logs.data() + kLnInputSpan) - MedianOf3(state_.logs.data()));
    const bool grows = ratio >= options_.growth_ratio && (state_.warmup.rising() || state_.growth.open());
    state_.growth.Observe(
        grows ? std::optional(Severity::kInfo) : std::nullopt, {.hold = options_.growth_reports, .quiet = kQuiet},
        context,
        [&](model::Finding* finding) {
          fill(finding, largest, std::exp(2 * MedianOf3(state_.logs.data())));
          finding->message =
              Sentence("The sum before the closing norm of layer %u grew %.3g times within %zu reports, to RMS %.3g, "
                       "while the learning rate still rises.", layer, ratio, kLnInputSpan, rms);
        },
        [&] { return Sentence("The sums before the closing norms no longer grow: largest RMS %.3g.", rms); });
  }
  if (usual_rms_ <= 0) return;
  const bool high = rms >= options_.level_ratio * usual_rms_;
  state_.level.Observe(
      high ? std::optional(Severity::kWarning) : std::nullopt, {.hold = options_.level_reports, .quiet = kQuiet},
      context,
      [&](model::Finding* finding) {
        fill(finding, largest, usual_rms_ * usual_rms_);
        finding->message =
            Sentence("The sum before the closing norm of layer %u has RMS %.3g, %.3g times that of a fresh model: what "
                     "the norm divides by so much hardly learns.", layer, rms, rms / usual_rms_);
      },
      [&] { return Sentence("The sums before the closing norms are below %g times the usual again: RMS %.3g.",
                            options_.level_ratio, rms); });
}

void LnInput::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  state_.known = 0;
  state_.growth.Break(EndedBy(kind, step), out);
  if (kind == Break::kIntervention) return;  // The level is absolute.
  state_.level.Break(EndedBy(kind, step), out);
  state_.warmup.Clear();
}

}  // namespace gyrostat::detect
