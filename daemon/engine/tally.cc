#include "engine/tally.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace gyrostat::engine {
namespace {

constexpr size_t kWorstHeadsMax = 8;   // What views.h promises, and what /metrics has slots for.
constexpr size_t kDecisionsMax = 16;   // A page of `show`.
constexpr size_t kBlockValues = 2048;  // Stays in the first-level cache while it is counted.

constexpr bool IsMeasured(float value) { return value == value && value != model::kAbsent; }

}  // namespace

void Tally::TakeReport(const model::Report& report, const model::ModelSpec& spec, double tau) {
  const std::span<const float> maxima = report.Array(model::Signal::kAttnLogitMax);
  if (!maxima.empty()) TakeLogits(maxima, spec, tau);
}

void Tally::TakeLogits(std::span<const float> maxima, const model::ModelSpec& spec, double tau) {
  histogram_.resize(std::size(kAttnLogitBuckets) + 1);
  worst_.clear();
  heads_over_tau_ = 0;
  // Without a spec the array is shown as one layer.
  const size_t heads = spec.heads > 0 ? spec.heads : spec.layers > 0 ? maxima.size() / spec.layers : maxima.size();
  const auto larger = [](const HeadMax& a, const HeadMax& b) { return a.value > b.value; };
  for (size_t i = 0; i < maxima.size(); ++i) {
    const float value = maxima[i];
    const bool small = worst_.size() == kWorstHeadsMax && value <= worst_.back().value;
    if (small || !IsMeasured(value)) continue;
    const HeadMax head{static_cast<uint32_t>(i / heads), static_cast<uint32_t>(i % heads), value};
    worst_.insert(std::ranges::upper_bound(worst_, head, larger), head);
    if (worst_.size() > kWorstHeadsMax) worst_.pop_back();
  }
  while (!maxima.empty()) {
    const std::span<const float> block = maxima.first(std::min(maxima.size(), kBlockValues));
    CountLogits(block, tau);
    maxima = maxima.subspan(block.size());
  }
}

// Counts comparisons instead of looking for each value's bucket: the compiler makes vectors of these loops, and a
// branch that goes either way at every head cost a fifth of what the daemon did for a report (tests/bench/ingest).
void Tally::CountLogits(std::span<const float> block, double tau) {
  const auto count = [block](auto holds) {
    uint32_t n = 0;
    for (const float value : block) n += holds(value) ? 1 : 0;
    return n;
  };
  uint32_t above = count(IsMeasured);
  for (size_t i = 0; i < std::size(kAttnLogitBuckets); ++i) {
    const float bound = static_cast<float>(kAttnLogitBuckets[i]);
    const uint32_t above_bound = count([bound](float value) { return value > bound; });
    histogram_[i] += above - above_bound;
    above = above_bound;
  }
  histogram_.back() += above;
  heads_over_tau_ += count([tau](float value) { return static_cast<double>(value) > tau; });
  for (const float value : block) sum_ += std::isfinite(value) && IsMeasured(value) ? static_cast<double>(value) : 0;
}

void Tally::TakeInterventions(const std::vector<model::Intervention>& changed) {
  for (const model::Intervention& each : changed) {
    const std::string kind = model::Token(each.kind);
    const auto seen = states_.find(each.id);
    const bool is_new = seen == states_.end();
    if (is_new || seen->second.first != each.state) ++interventions_[kind + "/" + model::Token(each.state)];
    if (each.outcome && (is_new || !seen->second.second)) ++outcomes_[kind + "/" + model::Token(*each.outcome)];
    if (model::IsOpen(each.state)) {
      states_[each.id] = {each.state, each.outcome.has_value()};
    } else if (!is_new) {
      states_.erase(seen);
    }
  }
}

void Tally::TakeDecisions(const std::vector<model::Decision>& decisions) {
  decisions_.insert(decisions_.end(), decisions.begin(), decisions.end());
  while (decisions_.size() > kDecisionsMax) decisions_.pop_front();
}

void Tally::Show(RunState* view) const {
  view->worst_heads = worst_;
  view->heads_over_tau = heads_over_tau_;
  view->attn_logit_histogram = histogram_;
  view->attn_logit_histogram.resize(std::size(kAttnLogitBuckets) + 1);
  view->attn_logit_sum = sum_;
  view->interventions_total.assign(interventions_.begin(), interventions_.end());
  view->outcomes_total.assign(outcomes_.begin(), outcomes_.end());
  view->recent_decisions.assign(decisions_.begin(), decisions_.end());
}

}  // namespace gyrostat::engine
