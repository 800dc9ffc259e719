#include "detect/nonfinite.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "detect/scan.h"
#include "detect/text.h"

namespace gyrostat::detect {
namespace {

using model::Signal;


// From cause to effect within a step: the forward from the layers to the loss, the gradients, what the update leaves.
// Scores and ratios that the client derives are not here: their inputs are.
constexpr Signal kCausalOrder[] = {
    Signal::kNonfinite, Signal::kHiddenAbsmax, Signal::kHiddenMs, Signal::kLnInputMs, Signal::kAttnLogitMax,
    Signal::kCrossAttnLogitMax, Signal::kAttnEntropy, Signal::kAttnOutMs, Signal::kMlpOutMs, Signal::kOutputLogitAbsmax,
    Signal::kLogZ, Signal::kLoss, Signal::kLayerGradNorm, Signal::kEmbeddingGradNorm, Signal::kOutputGradNorm,
    Signal::kGradNorm, Signal::kUpdateRms, Signal::kParamNorm, Signal::kLearningRate, Signal::kLossScale};

// A signal that turns within so many reports after another belongs to the same finding.
constexpr uint32_t kJoinReports = 8;

constexpr uint64_t Bit(Signal s) { return uint64_t{1} << static_cast<int>(s); }

constexpr uint64_t kGradients = Bit(Signal::kLayerGradNorm) | Bit(Signal::kEmbeddingGradNorm) |
                                Bit(Signal::kOutputGradNorm) | Bit(Signal::kGradNorm);

bool IsBadAt(Signal s, float v) {
  if (s == Signal::kNonfinite) return !IsFinite(v) || (v > 0 && !model::IsAbsent(v));
  if (IsFinite(v)) return false;
  return !(s == Signal::kAttnLogitMax || s == Signal::kCrossAttnLogitMax) || std::isnan(v) || v > 0;
}

bool ArrayIsBad(Signal s, std::span<const float> values) {
  if (s == Signal::kNonfinite)
    return std::any_of(values.begin(), values.end(), [s](float v) { return IsBadAt(s, v); });
  const Nonfinite count = CountNonfinite(values);
  const bool is_logit = s == Signal::kAttnLogitMax || s == Signal::kCrossAttnLogitMax;
  return count.nan + count.plus_inf + (is_logit ? 0 : count.minus_inf) > 0;
}

std::string WithOthers(uint64_t signals) {
  const auto others = static_cast<uint32_t>(std::popcount(signals) - 1);
  return others == 0 ? "" : ", and " + Counted(others, "more signal") + " with it";
}

// A dynamic loss scale that still has room to fall.
bool HasLossScale(const model::Report& report) {
  const double scale = report.Scalar(Signal::kLossScale);
  return report.Has(Signal::kLossScale) && std::isfinite(scale) && scale > 1;
}

}  // namespace

NonfiniteDetector::NonfiniteDetector(const NonfiniteOptions& options, const model::ModelSpec& spec)
    : options_(options), layers_(spec.layers), heads_(spec.heads) {}

NonfiniteDetector::Seen NonfiniteDetector::Look(const model::Report& report) const {
  Seen seen;
  for (const Signal s : kCausalOrder) {
    if (!report.Has(s)) continue;
    seen.measured |= Bit(s);
    const bool bad = model::IsScalar(s) ? !std::isfinite(report.Scalar(s)) : ArrayIsBad(s, report.Array(s));
    if (bad) seen.bad |= Bit(s);
  }
  return seen;
}

void NonfiniteDetector::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  const Seen seen = Look(report);
  uint64_t fresh = seen.bad;
  for (const Episode& episode : state_.open) fresh &= ~episode.signals;
  // What follows within a few reports is the same event on its way through the network.
  for (Episode& episode : state_.open) {
    if (episode.age >= kJoinReports) continue;
    episode.signals |= std::exchange(fresh, 0);
    break;
  }
  std::erase_if(state_.open, [&](Episode& episode) { return !Continue(report, seen, &episode, out); });
  if (fresh != 0) Begin(report, fresh, out);
  Remember(report);
}

void NonfiniteDetector::Escalate(const model::Report& report, Episode* episode, std::vector<model::Finding>* out) {
  model::Finding& finding = episode->finding;
  const model::Severity severity = SeverityOf(*episode, report);
  if (severity <= finding.severity) return;
  finding.severity = severity;
  const std::string signal(model::SignalName(finding.signal));
  finding.message = Sentence("%s is not finite since step %lld", signal.c_str(), Printable(finding.step_begin));
  finding.message += WithOthers(episode->signals) + "; " + Counted(episode->run, "report") + " in a row by now.";
  out->push_back(finding);
}

model::Severity NonfiniteDetector::SeverityOf(const Episode& episode, const model::Report& report) const {
  const bool scaler_at_work = (episode.signals & ~kGradients) == 0 && HasLossScale(report);
  const uint32_t lasting = scaler_at_work ? options_.scaled_lasting_reports : options_.lasting_reports;
  if (episode.run >= lasting) return model::Severity::kCritical;
  return scaler_at_work ? model::Severity::kInfo : model::Severity::kWarning;
}

void NonfiniteDetector::Begin(const model::Report& report, uint64_t signals, std::vector<model::Finding>* out) {
  Episode& episode = state_.open.emplace_back();
  episode.signals = signals;
  episode.run = episode.reports = 1;
  episode.last_bad = report.step;
  const Signal first = *std::find_if(std::begin(kCausalOrder), std::end(kCausalOrder),
                                     [signals](Signal s) { return (signals & Bit(s)) != 0; });
  model::Finding& finding = episode.finding;
  finding.key = state_.next_key++;
  finding.detector = name();
  finding.signal = first;
  finding.step_begin = finding.step_detected = report.step;
  finding.severity = SeverityOf(episode, report);
  std::string where;
  if (model::IsScalar(first)) {
    finding.value = report.Scalar(first);
  } else {
    const std::span<const float> values = report.Array(first);
    const auto at = static_cast<size_t>(
        std::find_if(values.begin(), values.end(), [first](float v) { return IsBadAt(first, v); }) - values.begin());
    finding.value = values[at];
    where = Place(first, values.size(), at, &finding);
  }
  const std::string signal(model::SignalName(first));
  finding.message = Sentence("%s is %g%s at step %lld", signal.c_str(), finding.value, where.c_str(),
                             Printable(report.step));
  finding.message += WithOthers(signals);
  finding.message += "." + Evidence();
  out->push_back(finding);
}

std::string NonfiniteDetector::Place(Signal signal, size_t size, size_t at, model::Finding* finding) const {
  const model::Shape shape = model::FindSignal(signal)->shape;
  const bool per_head =
      shape == model::Shape::kLayerHead || (shape == model::Shape::kLayerOrLayerHead && size != layers_);
  if (per_head && heads_ == 0) return Sentence(" at place %zu of %zu", at, size);
  if (per_head) {
    finding->layer = static_cast<uint32_t>(at / heads_);
    finding->head = static_cast<uint32_t>(at % heads_);
    return Sentence(" in layer %u, head %u", *finding->layer, *finding->head);
  }
  // A boundary b > 0 is the output of block b - 1; boundary 0 is what enters the first block.
  const bool boundaries = shape == model::Shape::kBoundary && layers_ > 0 && size == layers_ + size_t{1};
  if (boundaries && at == 0) return " at the input of the first layer";
  finding->layer = static_cast<uint32_t>(boundaries ? at - 1 : at);
  return Sentence(" in layer %u", *finding->layer);
}

bool NonfiniteDetector::Continue(const model::Report& report, const Seen& seen, Episode* episode,
                                 std::vector<model::Finding>* out) {
  episode->age = Saturating(episode->age);
  if ((seen.measured & episode->signals) == 0) return true;
  const std::string signal(model::SignalName(episode->finding.signal));
  if ((seen.bad & episode->signals) == 0) {
    episode->run = 0;
    if (++episode->quiet < options_.heal_reports) return true;
    episode->finding.step_end = episode->last_bad;
    episode->finding.healed = true;
    episode->finding.message = Sentence("%s is finite again; it was not in %s from step %lld to %lld.",
                                        signal.c_str(), Counted(episode->reports, "report").c_str(),
                                        Printable(episode->finding.step_begin),
                                        Printable(episode->last_bad));
    out->push_back(episode->finding);
    return false;
  }
  episode->quiet = 0;
  ++episode->run;
  ++episode->reports;
  episode->last_bad = report.step;
  Escalate(report, episode, out);
  return true;
}

void NonfiniteDetector::Remember(const model::Report& report) {
  Before& before = state_.before;
  const auto keep = [&report](Signal s, double* value, bool* has) {
    if (!report.Has(s) || !std::isfinite(report.Scalar(s))) return;
    *value = report.Scalar(s);
    *has = true;
  };
  keep(Signal::kLoss, &before.loss, &before.has_loss);
  keep(Signal::kGradNorm, &before.grad_norm, &before.has_grad_norm);
  if (const std::span<const float> hidden = report.Array(Signal::kHiddenAbsmax); !hidden.empty()) {
    if (const float max = MaxFinite(hidden); !model::IsAbsent(max)) {
      before.hidden_absmax = max;
      before.has_hidden = true;
    }
  }
  if (const std::span<const float> logits = report.Array(Signal::kAttnLogitMax); !logits.empty()) {
    if (const float max = MaxFinite(logits); !model::IsAbsent(max)) {
      before.attn_logit_max = max;
      before.has_attn = true;
    }
  }
}

std::string NonfiniteDetector::Evidence() const {
  const Before& before = state_.before;
  std::string text;
  const auto add = [&text](const std::string& what) { text += (text.empty() ? " Last finite before: " : ", ") + what; };
  if (before.has_loss) add(Sentence("loss %.4g", before.loss));
  if (before.has_grad_norm) add(Sentence("grad_norm %.4g", before.grad_norm));
  if (before.has_hidden)
    add(Sentence("largest hidden_absmax %.4g (fp16 ends at 65504)", before.hidden_absmax));
  if (before.has_attn) add(Sentence("largest attention logit %.4g", before.attn_logit_max));
  return text.empty() ? text : text + ".";
}

void NonfiniteDetector::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  if (kind == Break::kIntervention) return;
  for (Episode& episode : state_.open) {
    episode.finding.step_end = episode.last_bad;
    episode.finding.message = EndedBy(kind, step);
    out->push_back(episode.finding);
  }
  state_.open.clear();
  state_.before = {};
}

}  // namespace gyrostat::detect
