#include "detect/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "detect/text.h"

namespace gyrostat::detect {
namespace {

using model::Severity;
using model::Signal;

// A cut or a growth moves log2 by 1 as a rule; anything above rounding counts.
constexpr double kMove = 0.01;
constexpr size_t kWindowsKept = 2;
// So many overflows in a row at the smallest scale: no chance.
constexpr uint32_t kOverflowsLost = 3;

// DeepSpeed reports a norm that overflowed as -1.
bool Overflowed(const model::Report& report) {
  if (!report.Has(Signal::kGradNorm)) return false;
  const double norm = report.Scalar(Signal::kGradNorm);
  return !std::isfinite(norm) || norm < 0;
}

}  // namespace

LossScale::State::State(const LossScaleOptions& options)
    : window({.window = options.slope_reports, .winsor_mads = 0, .sigma_min = 0}) {
  logs.reserve(options.window_steps);
  steps.reserve(options.window_steps);
  medians.reserve(kWindowsKept + 1);
}

LossScale::LossScale(const LossScaleOptions& options) : options_(options), state_(options) {}

void LossScale::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  if (!report.Has(Signal::kLossScale)) return;
  const double scale = report.Scalar(Signal::kLossScale);
  // -1 is a placeholder, 0 and non-finite ones are no scale; 1 throughout is a run without one.
  if (!(scale > 0) || !std::isfinite(scale)) return;
  state_.overflows = Overflowed(report) ? Saturating(state_.overflows) : 0;
  Learn(report.step, std::log2(scale));
  ObserveCollapse(report.step, scale, out);
  ObserveSlope(report.step, scale, out);
}

void LossScale::Learn(model::Step step, double log2_scale) {
  const double move = state_.has_last ? log2_scale - state_.last : 0;
  state_.last = log2_scale;
  state_.has_last = true;
  if (move < -kMove) {
    state_.since_cut = 0;
    state_.cuts_in_a_row = Saturating(state_.cuts_in_a_row);
    state_.last_cut = step;
  } else {
    state_.since_cut = Saturating(state_.since_cut);
    state_.cuts_in_a_row = 0;
  }
  state_.grew = state_.grew || move > kMove;
  state_.settled = state_.settled || state_.grew || state_.since_cut >= options_.settled_reports;
  if (!state_.settled) return;
  size_t old = 0;
  while (old < state_.steps.size() && (step - state_.steps[old] >= static_cast<model::Step>(options_.window_steps) ||
                                       state_.steps.size() - old >= options_.window_steps))
    ++old;
  state_.logs.erase(state_.logs.begin(), state_.logs.begin() + static_cast<std::ptrdiff_t>(old));
  state_.steps.erase(state_.steps.begin(), state_.steps.begin() + static_cast<std::ptrdiff_t>(old));
  state_.logs.push_back(log2_scale);
  state_.steps.push_back(step);
  state_.window.Observe(log2_scale);
}

double LossScale::NetFall() const {
  // From the highest that stood for two reports: one stray value is no height to fall from.
  double highest = state_.last;
  for (size_t i = 1; i < state_.logs.size(); ++i)
    highest = std::max(highest, std::min(state_.logs[i - 1], state_.logs[i]));
  return highest - state_.last;
}

bool LossScale::AtTheEnd(double scale) const {
  if (scale > options_.scale_min) return false;
  const bool fell = state_.settled ? NetFall() > options_.halvings : state_.cuts_in_a_row >= kOverflowsLost;
  return fell || state_.overflows >= kOverflowsLost;
}

void LossScale::ObserveCollapse(model::Step step, double scale, std::vector<model::Finding>* out) {
  const bool at_end = AtTheEnd(scale);
  const bool lost = at_end || (state_.settled && state_.cuts_in_a_row >= options_.cuts_in_a_row);
  const double fall = NetFall();
  if (state_.collapse.open() && !lost && fall <= options_.halvings && state_.since_cut >= options_.settled_reports) {
    state_.collapse.End(state_.last_cut, true, Sentence("The loss scale holds at %.6g.", scale), out);
    return;
  }
  if (!lost && fall <= options_.halvings) return;
  const Severity severity = lost ? Severity::kCritical : Severity::kWarning;
  if (state_.collapse.open() && severity <= state_.collapse.finding().severity) return;
  if (!state_.collapse.open())
    state_.collapse.Open(name(), Signal::kLossScale, step, step, &state_.next_key);
  model::Finding& finding = state_.collapse.finding();
  finding.severity = severity;
  finding.value = scale;
  finding.expected = scale * std::exp2(fall);
  if (at_end) {
    finding.message = Sentence("The loss scale has fallen to %.6g: nothing is left to cut, and gradients still "
                               "overflow.", scale);
  } else if (lost) {
    finding.message = Sentence("The loss scale was cut in %s in a row, to %.6g: every step overflows.",
                               Counted(state_.cuts_in_a_row, "report").c_str(), scale);
  } else {
    finding.message = Sentence("The loss scale has fallen from %.6g to %.6g within %u steps: gradients overflow "
                               "again and again.", finding.expected, scale, options_.window_steps);
  }
  finding.recommend = lost ? model::InterventionKind::kRollback : model::InterventionKind::kLrScale;
  state_.collapse.Say(out);
}

void LossScale::ObserveSlope(model::Step step, double scale, std::vector<model::Finding>* out) {
  if (state_.window.count() < options_.slope_reports) return;
  state_.medians.push_back(state_.window.median());
  state_.window.Clear();
  if (state_.medians.size() <= kWindowsKept) return;
  const double first = state_.medians[0], second = state_.medians[1], third = state_.medians[2];
  state_.medians.erase(state_.medians.begin());
  const bool falls = second <= first - 1 && third <= second - 1;
  if (state_.slope.open() && third >= second) {
    state_.slope.End(step, true, Sentence("The loss scale no longer falls; its median is 2^%.3g.", third), out);
  } else if (falls && !state_.slope.open()) {
    model::Finding& finding = state_.slope.Open(name(), Signal::kLossScale, step, step, &state_.next_key);
    finding.severity = Severity::kInfo;
    finding.value = scale;
    finding.expected = std::exp2(first);
    finding.message = Sentence("The loss scale sinks: its median over %u reports went from 2^%.3g to 2^%.3g to 2^%.3g.",
                               options_.slope_reports, first, second, third);
    state_.slope.Say(out);
  }
}

void LossScale::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  if (kind == Break::kIntervention) return;  // The scale goes on as it was.
  if (state_.collapse.open()) state_.collapse.End(state_.last_cut, std::nullopt, EndedBy(kind, step), out);
  if (state_.slope.open()) state_.slope.End(step, std::nullopt, EndedBy(kind, step), out);
  const uint64_t next_key = state_.next_key;
  state_ = State(options_);
  state_.next_key = next_key;
}

bool LossScale::Fits() const {
  return state_.logs.size() <= options_.window_steps && state_.medians.size() <= kWindowsKept;
}

}  // namespace gyrostat::detect
