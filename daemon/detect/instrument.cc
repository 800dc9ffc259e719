#include "detect/instrument.h"

#include <algorithm>
#include <cmath>

#include "detect/scan.h"

namespace gyrostat::detect {
namespace {

using model::NormPlacement;
using model::Severity;
using model::Signal;

constexpr uint32_t kQuiet = 32;
// So many reports with a NaN gradient and a loss that does not move.
constexpr uint32_t kFilteredReports = 3;
// Fewer layers say nothing about placement.
constexpr size_t kPlacementLayersMin = 4;
constexpr double kAbsmaxSlack = 0.02;

bool IsMeasured(float v) { return IsFinite(v) && !model::IsAbsent(v); }

// x + F(x) with nothing that closes the block: norms of the parts bound the norm of the sum.
bool IsOpen(NormPlacement p) {
  return p == NormPlacement::kPre || p == NormPlacement::kPeri || p == NormPlacement::kReordered ||
         p == NormPlacement::kLayernormScaling;
}

// Of heads spread over the array, first and last among them.
size_t SampleAt(size_t i, size_t samples, size_t size) { return samples < 2 ? 0 : i * (size - 1) / (samples - 1); }

}  // namespace

Instrument::Instrument(const InstrumentOptions& options, const model::ModelSpec& spec)
    : options_(options), architecture_(model::ArchitectureOf(spec)) {}

Instrument::Doubt Instrument::LookAtSum(const model::Report& report) const {
  const std::span<const float> layers = report.Array(Signal::kLayerGradNorm);
  const double total = report.Scalar(Signal::kGradNorm);
  if (layers.empty() || !report.Has(Signal::kGradNorm) || !std::isfinite(total) || total <= 0) return {};
  double squares = 0, outer = 0;
  for (const float v : layers) {
    if (!IsFinite(v)) return {};
    if (v > 0) squares += static_cast<double>(v) * v;
  }
  // Embedding and output head may be one matrix, reported twice: the larger one is there in any case.
  for (const Signal part : {Signal::kEmbeddingGradNorm, Signal::kOutputGradNorm}) {
    const double v = report.Scalar(part);
    if (std::isfinite(v)) outer = std::max(outer, v);
  }
  squares += outer * outer;
  const double sum = std::sqrt(squares);
  return {.measured = true, .wrong = sum > total * (1 + options_.sum_slack), .signal = Signal::kGradNorm, .layer = {},
          .value = total, .expected = sum};
}

Instrument::Doubt Instrument::LookAtNorm(Check check, const model::Report& report) const {
  const double norm = report.Scalar(Signal::kGradNorm);
  if (!report.Has(Signal::kGradNorm) || !std::isfinite(norm)) return {};
  Doubt doubt{.measured = true, .wrong = false, .signal = Signal::kGradNorm, .layer = {}, .value = norm,
              .expected = norm};
  if (check == kMinusOne) doubt.wrong = norm == -1;
  if (check == kClipped) doubt.wrong = state_.has_grad_norm && norm == state_.last_grad_norm && norm > 0;
  return doubt;
}

Instrument::Doubt Instrument::LookAtLoss(const model::Report& report) const {
  const double loss = report.Scalar(Signal::kLoss), norm = report.Scalar(Signal::kGradNorm);
  if (!report.Has(Signal::kLoss) || !report.Has(Signal::kGradNorm)) return {};
  const bool repeats = loss == 0 || (state_.has_loss && loss == state_.last_loss);
  return {.measured = true, .wrong = std::isfinite(loss) && !std::isfinite(norm) && repeats, .signal = Signal::kLoss,
          .layer = {}, .value = loss, .expected = norm};
}

Instrument::Doubt Instrument::LookAtHeads(Check check, const model::Report& report) const {
  const std::span<const float> heads = report.Array(Signal::kAttnLogitMax);
  if (heads.size() < 2 || !IsMeasured(heads[0]) || heads[0] == 0) return {};
  Doubt doubt{.measured = true, .wrong = false, .signal = Signal::kAttnLogitMax, .layer = {}, .value = heads[0],
              .expected = heads[0]};
  if (check == kSameHeads) {
    doubt.wrong = std::all_of(heads.begin(), heads.end(), [first = heads[0]](float v) { return v == first; });
  } else {
    const size_t samples = std::min(kSampled, heads.size());
    doubt.wrong = state_.has_heads;
    for (size_t i = 0; i < samples && doubt.wrong; ++i)
      doubt.wrong = heads[SampleAt(i, samples, heads.size())] == state_.last_heads[i];
  }
  return doubt;
}

Instrument::Doubt Instrument::LookAtTriangle(const model::Report& report) const {
  const std::span<const float> hidden = report.Array(Signal::kHiddenMs);
  const std::span<const float> attention = report.Array(Signal::kAttnOutMs), mlp = report.Array(Signal::kMlpOutMs);
  if (!IsOpen(architecture_.placement) || attention.empty() || mlp.size() != attention.size()) return {};
  if (hidden.size() != attention.size() && hidden.size() != attention.size() + 1) return {};
  const size_t shift = hidden.size() - attention.size();  // Outputs only: the first block's input is not known.
  Doubt doubt{.measured = false, .wrong = false, .signal = Signal::kHiddenMs, .layer = {}, .value = 0, .expected = 0};
  for (size_t l = 1 - shift; l < attention.size() && !doubt.wrong; ++l) {
    const float in = hidden[l + shift - 1], out = hidden[l + shift];
    if (!IsMeasured(in) || !IsMeasured(out) || !IsMeasured(attention[l]) || !IsMeasured(mlp[l])) continue;
    if (in < 0 || out < 0 || attention[l] < 0 || mlp[l] < 0) continue;
    doubt.measured = true;
    const double x = std::sqrt(in), y = std::sqrt(out), added = std::sqrt(attention[l]) + std::sqrt(mlp[l]);
    const double slack = options_.triangle_slack * (x + added);
    if (y <= x + added + slack && y >= x - added - slack) continue;
    doubt.wrong = true;
    doubt.layer = static_cast<uint32_t>(l);
    doubt.value = y;
    doubt.expected = y > x ? x + added : x - added;
  }
  return doubt;
}

Instrument::Doubt Instrument::LookAtPlacement(const model::Report& report) const {
  const std::span<const float> hidden = report.Array(Signal::kHiddenMs);
  const bool closed = architecture_.post_norm_family;
  if ((!closed && !IsOpen(architecture_.placement)) || hidden.size() < kPlacementLayersMin) return {};
  // The first value may be the embedding, which is neither; the last may lie behind the final norm.
  double sum = 0, squares = 0, count = 0;
  for (size_t i = 1; i + 1 < hidden.size(); ++i) {
    if (!IsMeasured(hidden[i]) || hidden[i] <= 0) return {};
    sum += hidden[i], squares += static_cast<double>(hidden[i]) * hidden[i], count += 1;
  }
  const double mean = sum / count;
  const double variation = std::sqrt(std::max(0.0, squares / count - mean * mean)) / mean;
  const double growth = hidden[hidden.size() - 2] / static_cast<double>(hidden[1]);
  const bool wrong = closed ? growth > static_cast<double>(hidden.size()) && hidden.size() >= 2 * kPlacementLayersMin
                            : count > 2 && variation < options_.flat_share && std::fabs(mean - 1) < 0.1;
  return {.measured = true, .wrong = wrong, .signal = Signal::kHiddenMs, .layer = {}, .value = growth,
          .expected = closed ? 1 : static_cast<double>(hidden.size())};
}

Instrument::Doubt Instrument::LookAtSquares(Check check, const model::Report& report) const {
  const std::span<const float> hidden = report.Array(Signal::kHiddenMs), largest = report.Array(Signal::kHiddenAbsmax);
  if (check == kAbsmax) {
    Doubt doubt{.measured = !hidden.empty() && hidden.size() == largest.size(), .wrong = false,
                .signal = Signal::kHiddenAbsmax, .layer = {}, .value = 0, .expected = 0};
    for (size_t i = 0; doubt.measured && !doubt.wrong && i < hidden.size(); ++i) {
      if (!IsMeasured(hidden[i]) || !IsMeasured(largest[i]) || hidden[i] < 0) continue;
      const double rms = std::sqrt(static_cast<double>(hidden[i]));
      if (largest[i] >= rms * (1 - kAbsmaxSlack)) continue;
      doubt.wrong = true;
      doubt.layer = static_cast<uint32_t>(i);
      doubt.value = largest[i];
      doubt.expected = rms;
    }
    return doubt;
  }
  Doubt doubt;
  for (const Signal s : {Signal::kHiddenMs, Signal::kAttnOutMs, Signal::kMlpOutMs, Signal::kLnInputMs}) {
    const std::span<const float> values = report.Array(s);
    doubt.measured |= !values.empty();
    for (size_t i = 0; i < values.size() && !doubt.wrong; ++i) {
      if (!IsMeasured(values[i]) || values[i] >= 0) continue;
      doubt.wrong = true;
      doubt.signal = s;
      doubt.layer = static_cast<uint32_t>(i);
      doubt.value = values[i];
    }
  }
  return doubt;
}

Instrument::Doubt Instrument::Look(Check check, const model::Report& report) const {
  switch (check) {
    case kSum: return LookAtSum(report);
    case kClipped:
    case kMinusOne: return LookAtNorm(check, report);
    case kFiltered: return LookAtLoss(report);
    case kSameHeads:
    case kStuckHeads: return LookAtHeads(check, report);
    case kTriangle: return LookAtTriangle(report);
    case kPlacement: return LookAtPlacement(report);
    case kAbsmax:
    case kNegative: return LookAtSquares(check, report);
    case kChecks: break;
  }
  return {};
}

std::string Instrument::Describe(Check check, const Doubt& doubt) const {
  const unsigned layer = doubt.layer.value_or(0);
  switch (check) {
    case kSum:
      return Sentence("The parts' gradient norms make %.4g together, the reported global norm is %.4g: one of them is "
                      "clipped, scaled, or of other parameters.", doubt.expected, doubt.value);
    case kClipped:
      return Sentence("The gradient norm is %.4g in every report: it is taken after clipping, and hides what happens.",
                      doubt.value);
    case kMinusOne:
      return "The gradient norm is -1: DeepSpeed writes that where it made none, so it counts as not measured.";
    case kFiltered:
      return Sentence("The gradient is not finite while the loss stays at exactly %.6g: something filters NaN from the "
                      "loss (logging_nan_inf_filter does).", doubt.value);
    case kSameHeads:
      return Sentence("All heads show one maximum, %.4g: the hook is broken, or reports one value for all.",
                      doubt.value);
    case kStuckHeads:
      return Sentence("The attention maxima have not moved at all, first head %.4g: they are no longer measured.",
                      doubt.value);
    case kTriangle:
      return Sentence("The output of layer %u has RMS %.4g, which its input and its branches cannot make (limit %.4g): "
                      "what is hooked is not what is added to the stream.", layer, doubt.value, doubt.expected);
    case kPlacement:
      return Sentence("Declared is norm placement %s, but hidden states grow %.3g times over depth: that is %s one.",
                      model::Token(architecture_.placement), doubt.value,
                      architecture_.post_norm_family ? "an open (pre-norm)" : "a closed (post-norm)");
    case kAbsmax:
      return Sentence("The largest entry at place %u, %.4g, is below the RMS, %.4g: the two are of different tensors.",
                      layer, doubt.value, doubt.expected);
    case kNegative:
      return Sentence("A mean square is negative at place %u: %.4g.", layer, doubt.value);
    case kChecks: break;
  }
  return {};
}

void Instrument::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  const Sustained::Context context{name(), report.step, &state_.next_key, out};
  for (size_t i = 0; i < kChecks; ++i) {
    const auto check = static_cast<Check>(i);
    const Doubt doubt = Look(check, report);
    if (!doubt.measured) continue;
    Sustained::Limits limits{.hold = options_.wrong_reports, .quiet = kQuiet};
    if (check == kClipped || check == kStuckHeads) limits.hold = options_.stuck_reports;
    if (check == kPlacement) limits.hold = options_.placement_reports;
    if (check == kMinusOne) limits.hold = 1;
    if (check == kFiltered) limits.hold = kFilteredReports;
    const Severity severity = check == kMinusOne || check == kClipped ? Severity::kInfo : Severity::kWarning;
    state_.checks[i].Observe(
        doubt.wrong ? std::optional(severity) : std::nullopt, limits, context,
        [&](model::Finding* finding) {
          finding->signal = doubt.signal;
          finding->layer = doubt.layer;
          finding->value = doubt.value;
          finding->expected = doubt.expected;
          finding->message = Describe(check, doubt);
        },
        [&] { return Sentence("%s can be right again.", std::string(model::SignalName(doubt.signal)).c_str()); });
  }
  Remember(report);
}

void Instrument::Remember(const model::Report& report) {
  const double loss = report.Scalar(Signal::kLoss), norm = report.Scalar(Signal::kGradNorm);
  if (report.Has(Signal::kLoss) && std::isfinite(loss)) state_.last_loss = loss, state_.has_loss = true;
  if (report.Has(Signal::kGradNorm) && std::isfinite(norm)) state_.last_grad_norm = norm, state_.has_grad_norm = true;
  const std::span<const float> heads = report.Array(Signal::kAttnLogitMax);
  if (heads.empty()) return;
  const size_t samples = std::min(kSampled, heads.size());
  for (size_t i = 0; i < samples; ++i) state_.last_heads[i] = heads[SampleAt(i, samples, heads.size())];
  state_.has_heads = true;
}

void Instrument::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  if (kind == Break::kIntervention) return;
  for (Sustained& check : state_.checks) check.Break(EndedBy(kind, step), out);
  state_.has_grad_norm = state_.has_loss = state_.has_heads = false;
}

}  // namespace gyrostat::detect
